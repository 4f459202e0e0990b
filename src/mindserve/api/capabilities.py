"""Features that a request asks for and this server or its engine does not have: refused, never ignored in silence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from mindserve.api._generated.models import ChatCompletionRequest, NamedToolChoice
from mindserve.api.media_parts import media_types
from mindserve.api.openai_fields import logit_bias
from mindserve.api.presence import given
from mindserve.api.tool_use import may_call_tools
from mindserve.chat.media.refs import KINDS
from mindserve.chat.parsing.steps import Family
from mindserve.config.settings import ServeSettings
from mindserve.errors import RefusalKind, RequestRefused, shown
from mindserve_engine.types import Capability, EngineInfo, MediaKind, MediaModel


def check_model(request: ChatCompletionRequest, settings: ServeSettings) -> None:
    """Raise ``RequestRefused`` (MODEL_NOT_FOUND) when ``model`` is no served name."""
    names = (settings.model_name, *settings.lora_names)
    if request.model not in names:
        served = ", ".join(shown(name) for name in names)
        raise RequestRefused(
            f"model must be one of the served models ({served}), got {shown(request.model)}",
            field="model",
            kind=RefusalKind.MODEL_NOT_FOUND,
        )


def check_capabilities(
    request: ChatCompletionRequest, settings: ServeSettings, info: EngineInfo, *, family: Family | None
) -> None:
    """Raise ``RequestRefused`` naming the first field that asks for what is not there. ``family``: how the model writes
    tool calls; None, it writes none."""
    for wish in _wishes(request, settings, family, info.media):
        if wish.needs in CARRIED and wish.needs in info.capabilities:
            continue
        got = "" if wish.value is None else f", got {shown(wish.value)}"
        raise RequestRefused(f"{wish.field}: {wish.feature} is not available on this server{got}", field=wish.field)
    for key in logit_bias(request):
        if int(key) >= info.vocab_size:
            field = f"logit_bias.{key}"
            raise RequestRefused(f"{field} is no token of the model: its ids end at {info.vocab_size - 1}", field=field)


CARRIED: Final = frozenset(
    {
        Capability.PARALLEL_SAMPLING,
        Capability.BEAM_SEARCH,
        Capability.LOGPROBS,
        Capability.LOGIT_BIAS,
        Capability.LORA,
        Capability.GRAMMAR,
        Capability.MEDIA,
    }
)
"""What the server can ask of an engine and tell of its answers; the engine's own word decides about these alone."""


class _Wish(NamedTuple):
    """A field that asks for a feature."""

    field: str
    value: object
    feature: str
    needs: Capability | None
    """None: the feature is the server's own, and it has it not."""


def _wishes(
    request: ChatCompletionRequest, settings: ServeSettings, family: Family | None, media: MediaModel | None
) -> Iterator[_Wish]:
    if request.model in settings.lora_names:
        yield _Wish("model", request.model, "a LoRA adapter", Capability.LORA)
    yield from _media(request, media)
    yield from _sequences(request)
    if request.logprobs is True:
        yield _Wish("logprobs", True, "reporting log-probabilities", Capability.LOGPROBS)
    if given(request.top_logprobs) is not None and request.logprobs is not False:
        yield _Wish("top_logprobs", request.top_logprobs, "reporting log-probabilities", Capability.LOGPROBS)
    if logit_bias(request):
        yield _Wish("logit_bias", None, "a bias of tokens", Capability.LOGIT_BIAS)
    if may_call_tools(request):
        yield from _calls(request, family)
    wanted = given(request.response_format)
    if wanted is not None and wanted.type != "text":
        yield _Wish("response_format.type", wanted.type, "constrained output", Capability.GRAMMAR)


def _calls(request: ChatCompletionRequest, family: Family | None) -> Iterator[_Wish]:
    if family is None:
        yield _Wish("tools", None, "calling tools with this model", None)
    choice = request.tool_choice
    if choice == "required" or isinstance(choice, NamedToolChoice):
        value = choice if isinstance(choice, str) else choice.function.name
        yield _Wish("tool_choice", value, "enforcing a call of the tools", Capability.GRAMMAR)
    for i, tool in enumerate(given(request.tools) or ()):
        if tool.function.strict is True:
            yield _Wish(f"tools[{i}].function.strict", True, "constrained output", Capability.GRAMMAR)


def _media(request: ChatCompletionRequest, model: MediaModel | None) -> Iterator[_Wish]:
    taken = _kinds(model)
    for i, j, name in media_types(request):
        kind = KINDS[name]
        needs = Capability.MEDIA if kind in taken else None
        yield _Wish(f"messages[{i}].content[{j}].type", name, f"{kind} input", needs)


def _kinds(model: MediaModel | None) -> frozenset[MediaKind]:
    """What the model takes beside text."""
    if model is None:
        return frozenset()
    placeholders = {
        MediaKind.IMAGE: model.image_token_id,
        MediaKind.VIDEO: model.video_token_id,
        MediaKind.AUDIO: model.audio_token_id,
    }
    return frozenset(kind for kind, token_id in placeholders.items() if token_id is not None)


def _sequences(request: ChatCompletionRequest) -> Iterator[_Wish]:
    if request.use_beam_search is True:
        yield _Wish("use_beam_search", True, "beam search", Capability.BEAM_SEARCH)
        return
    n, best_of = given(request.n), given(request.best_of)
    for field, number in (("best_of", best_of), ("n", n)):
        if number is not None and number > 1:
            yield _Wish(field, number, "generating several sequences", Capability.PARALLEL_SAMPLING)
