"""From a checked request to what the engine is asked for. Pure; the defaults and clamps of the contract are here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from mindserve.api._generated.constants import DEFAULT_TOP_K, MAX_PROMPT_TOKENS, SEED_WARNING_MARGIN
from mindserve.api._generated.defaults import ChatCompletionRequestDefaults as Defaults
from mindserve.api._generated.models import ChatCompletionRequest, ChatMessage
from mindserve.api.openai_fields import logit_bias
from mindserve.api.presence import given
from mindserve.api.sequences import sequence_wishes
from mindserve.api.tool_use import may_call_tools
from mindserve.config.settings import ServeSettings
from mindserve.errors import RefusalKind, RequestRefused
from mindserve.observe.logs import fields
from mindserve_engine.types import SEED_MAX, EngineInfo, GenerationRequest, MediaItem, SamplingParams

_LOG: Final = logging.getLogger(__name__)


def lower_request(
    request: ChatCompletionRequest,
    *,
    settings: ServeSettings,
    info: EngineInfo,
    prompt_token_ids: list[int],
    media: tuple[MediaItem, ...] = (),
    request_id: str,
    random_seed: Callable[[], int],
) -> GenerationRequest:
    """What the engine is asked for. Raises ``RequestRefused`` (CONTEXT_LENGTH) when the prompt is too long."""
    check_prompt_length(len(prompt_token_ids), settings, info)
    wishes = sequence_wishes(request)
    return GenerationRequest(
        request_id=request_id,
        prompt_token_ids=prompt_token_ids,
        media=media,
        max_tokens=_max_tokens(request, settings, info, len(prompt_token_ids)),
        sampling=_sampling(request, info, random_seed),
        stop_token_ids=_stop_token_ids(request, info),
        ignore_eos=_given(request.ignore_eos, Defaults.ignore_eos),
        num_sequences=wishes.num_returned,
        beam_width=wishes.beam_width,
        num_logprobs=0 if wishes.ranked and wishes.num_logprobs is None else wishes.num_logprobs,
        adapter=request.model if request.model in settings.lora_names else None,
    )


def _given(value: Any, default: Any) -> Any:
    present = given(value)
    return default if present is None else present


def check_prompt_length(num_tokens: int, settings: ServeSettings, info: EngineInfo, *, media: str = "") -> None:
    """Raise ``RequestRefused`` naming the narrowest limit that ``num_tokens`` exceeds. ``media``: which of them are
    those of media, for people."""
    limits: list[tuple[int, str]] = [(MAX_PROMPT_TOKENS, "the limit of the API")]
    if settings.max_input_token_len is not None:
        limits.append((settings.max_input_token_len, "maxInputTokenLen"))
    if settings.max_seq_len is not None:
        limits.append((settings.max_seq_len - 1, "maxSeqLen - 1"))
    # max_context is the least of maxSeqLen, the model's positions and the memory; a token must fit behind the prompt.
    narrowest = "the KV memory (npuMemSize)" if info.is_context_cut_by_memory else "max_position_embeddings"
    limits.append((info.max_context - 1, f"{narrowest} - 1"))
    limits.append((info.max_prompt_tokens, "the engine's limit"))
    limit, name = min(limits, key=lambda pair: pair[0])
    if num_tokens > limit:
        raise RequestRefused(
            f"this model's maximum context length is {info.max_context} tokens, {limit} of them for the prompt "
            f"({name}); messages have {num_tokens} tokens" + (media and f", of them {media}"),
            field="messages",
            kind=RefusalKind.CONTEXT_LENGTH,
        )


def _max_tokens(request: ChatCompletionRequest, settings: ServeSettings, info: EngineInfo, num_prompt: int) -> int:
    """``max_completion_tokens`` is the newer name of ``max_tokens`` and wins (reading R23)."""
    asked = given(request.max_completion_tokens) or given(request.max_tokens) or settings.max_iter_times
    return min(settings.max_iter_times, asked, info.max_context - num_prompt)


def _sampling(request: ChatCompletionRequest, info: EngineInfo, random_seed: Callable[[], int]) -> SamplingParams:
    return SamplingParams(
        temperature=float(_given(request.temperature, Defaults.temperature)),
        top_k=_top_k(request, info),
        top_p=float(_given(request.top_p, Defaults.top_p)),
        seed=_seed(request, random_seed),
        repetition_penalty=float(_given(request.repetition_penalty, Defaults.repetition_penalty)),
        presence_penalty=float(_given(request.presence_penalty, Defaults.presence_penalty)),
        frequency_penalty=float(_given(request.frequency_penalty, Defaults.frequency_penalty)),
        logit_bias=tuple((int(key), float(bias)) for key, bias in logit_bias(request).items()),
    )


def _top_k(request: ChatCompletionRequest, info: EngineInfo) -> int:
    asked = given(request.top_k)
    if asked is None:
        return DEFAULT_TOP_K if info.default_top_k is None else info.default_top_k
    return max(asked, 0)  # -1 switches it off; the engine's word for that is 0


def _seed(request: ChatCompletionRequest, random_seed: Callable[[], int]) -> int:
    seed = given(request.seed)
    if seed is None:
        return random_seed()
    if seed > SEED_MAX - SEED_WARNING_MARGIN:
        _LOG.warning("seed is close to its maximum", extra=fields(seed=seed, maximum=SEED_MAX))
    return seed


def _stop_token_ids(request: ChatCompletionRequest, info: EngineInfo) -> tuple[int, ...]:
    """Elements that are no int32 are passed over (reading R13); ids outside the vocabulary can never be generated."""
    elements = given(request.stop_token_ids) or []
    ids = [element for element in elements if type(element) is int and 0 <= element < info.vocab_size]
    return tuple(dict.fromkeys(ids))


def stop_strings(request: ChatCompletionRequest) -> Sequence[str]:
    """A single string is a list of one; an empty list asks for nothing."""
    stop = given(request.stop)
    if stop is None:
        return []
    return [stop] if isinstance(stop, str) else stop


class TemplateInput(msgspec.Struct, frozen=True):
    """What the chat template is given, as plain data without absent and null fields."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    """None with ``tool_choice`` "none": the template is not told of them."""
    template_kwargs: dict[str, Any]


def template_input(request: ChatCompletionRequest) -> TemplateInput:
    """Takes time for long conversations."""
    kwargs = given(request.chat_template_kwargs) or {}
    return TemplateInput(
        messages=[_plain_message(message) for message in request.messages],
        tools=msgspec.to_builtins(request.tools) if may_call_tools(request) else None,
        template_kwargs={name: value for name, value in kwargs.items() if value is not None},
    )


def _plain_message(message: ChatMessage) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(message)
    return {name: value for name, value in plain.items() if value is not None}
