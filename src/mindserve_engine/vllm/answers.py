"""From vLLM's outputs to our events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from mindserve_engine.types import LOGPROB_FLOOR, EngineInfo, FinishReason, GenerationRequest, TokenLogprobs


class Ranked(NamedTuple):
    """The log-probabilities of one position."""

    token_ids: list[int]
    """The likeliest first."""
    logprobs: list[float]


def ranked(entries: Mapping[int, Any], number: int) -> Ranked:
    """The ``number`` likeliest of one position of vLLM's, which has the token that was taken as well."""
    best = sorted(entries.items(), key=lambda item: item[1].rank)[:number]
    return Ranked([token for token, _ in best], [_finite(entry.logprob) for _, entry in best])


def token_logprobs(
    token_ids: Iterable[int], positions: Iterable[Mapping[int, Any]], number: int
) -> list[TokenLogprobs]:
    """Of the tokens of one output, with the ``number`` likeliest ones of each position."""
    found = []
    for token_id, entries in zip(token_ids, positions, strict=True):
        top = ranked(entries, number)
        found.append(TokenLogprobs(_finite(entries[token_id].logprob), top.token_ids, top.logprobs))
    return found


def finish_reason(completion: Any, request: GenerationRequest, info: EngineInfo) -> FinishReason | None:
    """Why vLLM ended a sequence by itself; None: it did not, or not in a way that answers anything."""
    if completion.finish_reason == "length":
        return FinishReason.LENGTH
    if completion.finish_reason != "stop":
        return None
    is_eos = not request.ignore_eos and completion.stop_reason in info.eos_token_ids
    return FinishReason.EOS if is_eos else FinishReason.STOP_TOKEN


def _finite(logprob: float) -> float:
    return max(float(logprob), LOGPROB_FLOOR)
