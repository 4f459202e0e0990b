"""Beam search over vLLM, which has none in its engine: each step asks it for one token of every living beam."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Final

from mindserve_engine.beam import BeamSearch, Candidate, Continuation
from mindserve_engine.interface import RequestInvalid
from mindserve_engine.types import (
    EngineInfo,
    GenerationRequest,
    SamplingParams,
    SequenceEvent,
    TokenLogprobs,
    TokenTiming,
)
from mindserve_engine.vllm.answers import Ranked

MAX_VALUES: Final = 2**20
"""Log-probabilities that one step may bring, of all beams together."""


@dataclass(eq=False, slots=True)
class LivingBeam:
    """Implements ``beam.Beam``."""

    output_token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    beam_score: float = 0.0


@dataclass(slots=True)
class StepOfBeam:
    """What vLLM answered for one beam."""

    ranked: Ranked
    timing: TokenTiming
    num_cached_tokens: int


@dataclass(frozen=True, slots=True)
class _Row:
    """Implements ``beam.Row``."""

    candidates: list[Candidate]
    logprobs: TokenLogprobs | None


Ask = Callable[[str, list[int], int], Coroutine[None, None, StepOfBeam]]
"""A name, the beam's output so far, how many log-probabilities are wanted."""


def num_values(request: GenerationRequest, num_candidates: int, num_output: int, vocab_size: int) -> int:
    """Log-probabilities that are needed of a beam of ``num_output`` tokens, so that its ``num_candidates`` best after
    penalties are among them. What is lowered can only make room for as many others; what is raised may come from
    anywhere."""
    sampling = request.sampling
    is_raised = any(bias > 0 for _, bias in sampling.logit_bias)
    is_raised |= sampling.repetition_penalty < 1 or min(sampling.presence_penalty, sampling.frequency_penalty) < 0
    if is_raised:
        return vocab_size
    lowered = {token for token, _ in sampling.logit_bias}
    if sampling.repetition_penalty > 1:
        lowered.update(request.prompt_token_ids)
    num_lowered = len(lowered)
    if sampling.repetition_penalty > 1 or sampling.presence_penalty or sampling.frequency_penalty:
        num_lowered += num_output
    return min(vocab_size, num_candidates + num_lowered)


def check_search(request: GenerationRequest, info: EngineInfo) -> None:
    """Raise ``RequestInvalid`` for a search whose penalties need more log-probabilities than can be carried."""
    search = BeamSearch[LivingBeam](request, eos_token_ids=info.eos_token_ids, max_tokens=1)
    num_output = min(request.max_tokens, info.max_context)
    values = request.beam_width * num_values(request, search.num_candidates, num_output, info.vocab_size)
    if values > MAX_VALUES:
        reason = f"is {request.beam_width}; with these penalties a step needs {values} values, more than {MAX_VALUES}"
        raise RequestInvalid(field="beam_width", reason=reason)


async def run_search(request: GenerationRequest, info: EngineInfo, max_tokens: int, ask: Ask) -> list[SequenceEvent]:
    """Search to the end; the request's events."""
    search = BeamSearch[LivingBeam](request, eos_token_ids=info.eos_token_ids, max_tokens=max_tokens)
    beams, num_cached, last = [LivingBeam()], 0, time.monotonic()
    while beams:
        step = len(search.timings)
        wanted = num_values(request, search.num_candidates, step, info.vocab_size)
        answers = await _all(
            ask(f"{step}/{number}", beam.output_token_ids, wanted) for number, beam in enumerate(beams)
        )
        now = time.monotonic()
        search.timings.append(_timing(answers, is_first=step == 0, gap_s=now - last))
        last = now
        num_cached = num_cached if step else answers[0].num_cached_tokens
        rows = {
            beam: _row(request, beam, answer.ranked, search.num_candidates)
            for beam, answer in zip(beams, answers, strict=True)
        }
        beams = [_grown(heir) for heir in search.advance(rows)]
    return search.events(num_cached_tokens=num_cached)


async def _all(asked: Iterable[Coroutine[None, None, StepOfBeam]]) -> list[StepOfBeam]:
    """All answers, or the first failure, with none of the others left behind."""
    tasks = [asyncio.create_task(one) for one in asked]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _timing(answers: list[StepOfBeam], *, is_first: bool, gap_s: float) -> TokenTiming:
    slowest = max((answer.timing for answer in answers), key=lambda timing: timing.step_ms)
    if is_first:
        return slowest
    wait_us = max(0, round(gap_s * 1e6 - slowest.step_ms * 1000))
    batch_size = max(answer.timing.batch_size for answer in answers)
    return TokenTiming(wait_us, batch_size, gap_s * 1000)


def _grown(heir: Continuation[LivingBeam]) -> LivingBeam:
    logprobs = [] if heir.logprobs is None else [*heir.parent.logprobs, heir.logprobs]
    return LivingBeam([*heir.parent.output_token_ids, heir.token_id], logprobs, heir.score)


def _row(request: GenerationRequest, beam: LivingBeam, top: Ranked, number: int) -> _Row:
    candidates = rescored(top, request.sampling, request.prompt_token_ids, beam.output_token_ids)[:number]
    if request.num_logprobs is None:
        return _Row(candidates, None)
    count = request.num_logprobs
    return _Row(candidates, TokenLogprobs(0.0, top.token_ids[:count], top.logprobs[:count]))


def rescored(top: Ranked, sampling: SamplingParams, prompt: list[int], output: list[int]) -> list[Candidate]:
    """Continuations by their scores, best first: bias and penalties count on log-probabilities, as transformers has
    it."""
    bias, counts = dict(sampling.logit_bias), Counter(output)
    repeated = {*prompt, *output} if sampling.repetition_penalty != 1 else set()
    found = []
    for token_id, logprob in zip(top.token_ids, top.logprobs, strict=True):
        score = logprob + bias.get(token_id, 0.0)
        if token_id in repeated:
            score = score * sampling.repetition_penalty if score < 0 else score / sampling.repetition_penalty
        if token_id in counts:
            score -= sampling.presence_penalty + sampling.frequency_penalty * counts[token_id]
        found.append(Candidate(token_id, score, logprob))
    found.sort(key=lambda candidate: -candidate.score)
    return found
