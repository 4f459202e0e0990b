"""Features that a request asks for and this server or its engine does not have: refused, never ignored in silence."""

from __future__ import annotations

from collections.abc import Iterator

from mindserve.api._generated.models import ChatCompletionRequest, TextPart
from mindserve.api.presence import filled, given
from mindserve.config.settings import ServeSettings
from mindserve.errors import RefusalKind, RequestRefused, shown
from mindserve_engine.types import Capability, EngineInfo


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


def check_capabilities(request: ChatCompletionRequest, settings: ServeSettings, info: EngineInfo) -> None:
    """Raise ``RequestRefused`` naming the first field that asks for what is not there."""
    for field, value, feature in _missing(request, settings, info):
        got = "" if value is None else f", got {shown(value)}"
        raise RequestRefused(f"{field}: {feature} is not available on this server{got}", field=field)


def _missing(
    request: ChatCompletionRequest, settings: ServeSettings, info: EngineInfo
) -> Iterator[tuple[str, object, str]]:
    """Triples of field, value and feature."""
    if request.model in settings.lora_names:
        yield "model", request.model, "a LoRA adapter"
    yield from _missing_media(request)
    yield from _missing_sequences(request, info)
    if request.logprobs is True:
        yield "logprobs", True, "reporting log-probabilities"
    if given(request.top_logprobs) is not None and request.logprobs is not False:
        yield "top_logprobs", request.top_logprobs, "reporting log-probabilities"
    if filled(request.tools) and request.tool_choice != "none":
        yield "tools", None, "calling tools"
    wanted = given(request.response_format)
    if wanted is not None and wanted.type != "text":
        yield "response_format.type", wanted.type, "constrained output"


def _missing_media(request: ChatCompletionRequest) -> Iterator[tuple[str, object, str]]:
    for i, message in enumerate(request.messages):
        for j, part in enumerate(message.content if isinstance(message.content, list) else ()):
            if not isinstance(part, TextPart):
                yield f"messages[{i}].content[{j}].type", part.__struct_config__.tag, "media input"


def _missing_sequences(request: ChatCompletionRequest, info: EngineInfo) -> Iterator[tuple[str, object, str]]:
    n, best_of = given(request.n), given(request.best_of)
    if request.use_beam_search is True:
        yield "use_beam_search", True, "beam search"
    if best_of is not None and best_of > 1:
        yield "best_of", best_of, "choosing among several sequences"
    if n is not None and n > 1 and Capability.PARALLEL_SAMPLING not in info.capabilities:
        yield "n", n, "generating several sequences"
