"""What every engine checks before it takes a request, from nothing but the request and the engine's facts."""

from __future__ import annotations

import math

from mindserve_engine.interface import PromptTooLong, RequestInvalid
from mindserve_engine.media_admission import check_media
from mindserve_engine.types import SEED_MAX, Capability, EngineInfo, GenerationRequest, SamplingParams


def check_request(request: GenerationRequest, info: EngineInfo) -> None:
    """Raise ``RequestInvalid`` or ``PromptTooLong`` when ``request`` cannot be honoured by the engine of ``info``."""
    _check_prompt(request.prompt_token_ids, info)
    if request.max_tokens < 1:
        raise RequestInvalid(field="max_tokens", reason=f"is {request.max_tokens}, must be at least 1")
    if request.num_sequences < 1:
        raise RequestInvalid(field="num_sequences", reason=f"is {request.num_sequences}, must be at least 1")
    _check_capabilities(request, info)
    check_media(request, info)
    if request.grammar is not None and request.beam_width:
        raise RequestInvalid(field="grammar", reason="cannot be combined with beam search")
    if request.beam_width:
        _check_beams(request, info)
    check_sampling(request.sampling)
    _check_bias(request.sampling.logit_bias, info)


def _check_capabilities(request: GenerationRequest, info: EngineInfo) -> None:
    wanted = (
        (Capability.PARALLEL_SAMPLING, "num_sequences", request.num_sequences > 1 and not request.beam_width),
        (Capability.BEAM_SEARCH, "beam_width", request.beam_width > 0),
        (Capability.LOGPROBS, "num_logprobs", request.num_logprobs is not None),
        (Capability.LORA, "adapter", request.adapter is not None),
        (Capability.GRAMMAR, "grammar", request.grammar is not None),
    )
    for capability, field, is_wanted in wanted:
        if is_wanted and capability not in info.capabilities:
            reason = f"is {getattr(request, field)!r}, but this engine lacks {capability.value.replace('_', ' ')}"
            raise RequestInvalid(field=field, reason=reason)
    if request.num_logprobs is not None and request.num_logprobs < 0:
        raise RequestInvalid(field="num_logprobs", reason=f"is {request.num_logprobs}, must be at least 0")
    if request.adapter is not None and request.adapter not in info.adapters:
        known = ", ".join(info.adapters) or "none"
        raise RequestInvalid(field="adapter", reason=f"is {request.adapter!r}, must be one of: {known}")


def _check_beams(request: GenerationRequest, info: EngineInfo) -> None:
    """All beams of a search run in one step and end with as many hypotheses as there are beams."""
    width = request.beam_width
    num_blocks = -(-len(request.prompt_token_ids) // max(1, info.block_size)) + width
    limits = (
        (info.vocab_size, width, "the vocabulary has {} tokens"),
        (info.max_batch_size or width, width, "a step runs at most {} sequences"),
        (info.num_blocks or num_blocks, num_blocks, f"they need {num_blocks} KV blocks from the start, there are {{}}"),
    )
    if width < request.num_sequences:
        raise RequestInvalid(field="beam_width", reason=f"is {width}, must be at least {request.num_sequences}")
    for limit, value, text in limits:
        if value > limit:
            raise RequestInvalid(field="beam_width", reason=f"is {width}, too many beams: {text.format(limit)}")


def check_sampling(params: SamplingParams) -> None:
    """Raise ``RequestInvalid`` naming the first parameter that cannot be computed with.

    The ranges of an API are its contract's affair; these are the limits of the arithmetic."""
    _check_range("temperature", params.temperature, low=0.0, high=math.inf, low_allowed=True)
    _check_range("top_p", params.top_p, low=0.0, high=1.0)
    _check_range("repetition_penalty", params.repetition_penalty, low=0.0, high=math.inf)
    _check_range("presence_penalty", params.presence_penalty, low=-math.inf, high=math.inf)
    _check_range("frequency_penalty", params.frequency_penalty, low=-math.inf, high=math.inf)
    if params.top_k < 0:
        raise RequestInvalid(field="top_k", reason=f"is {params.top_k}, must be 0 (all) or more")
    if not 0 <= params.seed <= SEED_MAX:
        raise RequestInvalid(field="seed", reason=f"is {params.seed}, must lie in 0..{SEED_MAX}")


def _check_bias(logit_bias: tuple[tuple[int, float], ...], info: EngineInfo) -> None:
    if logit_bias and Capability.LOGIT_BIAS not in info.capabilities:
        raise RequestInvalid(field="logit_bias", reason="is given, but this engine lacks logit bias")
    for token_id, bias in logit_bias:
        if not 0 <= token_id < info.vocab_size:
            reason = f"names token {token_id}, outside the vocabulary of {info.vocab_size}"
            raise RequestInvalid(field="logit_bias", reason=reason)
        if not math.isfinite(bias):
            raise RequestInvalid(field="logit_bias", reason=f"of token {token_id} is {bias}, must be finite")


def _check_prompt(token_ids: list[int], info: EngineInfo) -> None:
    if not token_ids:
        raise RequestInvalid(field="prompt_token_ids", reason="the prompt has no tokens")
    if len(token_ids) > info.max_prompt_tokens:
        raise PromptTooLong(num_tokens=len(token_ids), limit=info.max_prompt_tokens, limit_name="max_prompt_tokens")
    if min(token_ids) < 0 or max(token_ids) >= info.vocab_size:
        outside = next(token_id for token_id in token_ids if not 0 <= token_id < info.vocab_size)
        reason = f"token id {outside} is outside the vocabulary of {info.vocab_size}"
        raise RequestInvalid(field="prompt_token_ids", reason=reason)


def _check_range(field: str, value: float, *, low: float, high: float, low_allowed: bool = False) -> None:
    above_low = value >= low if low_allowed else value > low
    if not (above_low and value <= high and math.isfinite(value)):
        opening = "[" if low_allowed else "("
        raise RequestInvalid(field=field, reason=f"is {value}, must lie in {opening}{low:g}, {high:g}]")
