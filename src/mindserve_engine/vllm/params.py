"""From a request to what vLLM is asked for each of its sequences."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams

from mindserve_engine.interface import RequestInvalid
from mindserve_engine.types import EngineInfo, GenerationRequest

SEED_END: Final = 2**63
"""vLLM keeps seeds in int64."""
TEMPERATURES: Final = (0.01, 2.0)
"""vLLM raises what is below, and refuses what is above."""
TEMPERATURE_KEY: Final = "mindserve_temperature"
"""Under which the temperature that was asked for travels to ``temperature.TemperatureOutside``."""
_MAX_PENALTY: Final = 2.0


def check_params(request: GenerationRequest, *, has_all_temperatures: bool) -> None:
    """Raise ``RequestInvalid`` for what our types allow and vLLM does not."""
    sampling = request.sampling
    for field in ("presence_penalty", "frequency_penalty"):
        value = getattr(sampling, field)
        if abs(value) > _MAX_PENALTY and not request.beam_width:
            raise RequestInvalid(field=field, reason=f"is {value}, must lie in [-2, 2] with vLLM")
    if sampling.temperature > TEMPERATURES[1] and not has_all_temperatures and not request.beam_width:
        reason = f"is {sampling.temperature}, at most {TEMPERATURES[1]:g} is possible on this installation of vLLM"
        raise RequestInvalid(field="temperature", reason=reason)


def sequence_params(request: GenerationRequest, index: int, info: EngineInfo) -> SamplingParams:
    """For one sequence. End-of-sequence tokens are given as stop tokens: a model may have several, of which vLLM would
    know one."""
    sampling = request.sampling
    low, high = TEMPERATURES
    is_greedy = sampling.temperature == 0
    temperature = 0.0 if is_greedy else min(max(sampling.temperature, low), high)
    extra = None if temperature == sampling.temperature else {TEMPERATURE_KEY: sampling.temperature}
    return SamplingParams(
        temperature=temperature,
        top_k=0 if sampling.top_k >= info.vocab_size else sampling.top_k,
        top_p=sampling.top_p,
        seed=None if is_greedy else stream_seed(sampling.seed, index),
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        logit_bias=dict(sampling.logit_bias) or None,
        logprobs=None if request.num_logprobs is None else min(request.num_logprobs, info.vocab_size),
        stop_token_ids=_stop_token_ids(request, info),
        ignore_eos=True,
        max_tokens=num_tokens(request, info),
        structured_outputs=_grammar(request),
        extra_args=extra,
        **_OURS,
    )


def search_params(num_logprobs: int) -> SamplingParams:
    """For one step of one beam."""
    settings: dict[str, Any] = {**_OURS, "output_kind": RequestOutputKind.FINAL_ONLY}
    return SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True, logprobs=num_logprobs, **settings)


_OURS: Final[dict[str, Any]] = {"detokenize": False, "output_kind": RequestOutputKind.DELTA}
"""Text is made by the server, of every token as it comes."""


def num_tokens(request: GenerationRequest, info: EngineInfo) -> int:
    """The most tokens of a sequence."""
    return min(request.max_tokens, info.max_context - len(request.prompt_token_ids))


def stream_seed(seed: int, index: int) -> int:
    """The seed of one sequence's random stream, in 0..2^63-1. The first sequence of a seed that vLLM can keep has that
    seed; all others have one that is drawn from both numbers, so that no two sequences of neighbouring seeds share a
    stream."""
    if index == 0 and seed < SEED_END:
        return seed
    digest = hashlib.blake2b(f"{seed}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % SEED_END


def _stop_token_ids(request: GenerationRequest, info: EngineInfo) -> list[int]:
    ends = () if request.ignore_eos else info.eos_token_ids
    return [*ends, *(token for token in request.stop_token_ids if 0 <= token < info.vocab_size)]


def _grammar(request: GenerationRequest) -> StructuredOutputsParams | None:
    return None if request.grammar is None else StructuredOutputsParams(grammar=request.grammar)
