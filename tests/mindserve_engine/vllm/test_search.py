"""The loop of beam search over an engine that has none, against a table of log-probabilities."""

from __future__ import annotations

import asyncio
import math
import random
from typing import Any

import pytest

from mindserve_engine.interface import RequestInvalid
from mindserve_engine.types import EngineInfo, GenerationRequest, SamplingParams, TokenTiming
from mindserve_engine.vllm.answers import Ranked
from mindserve_engine.vllm.search import StepOfBeam, check_search, num_values, run_search

VOCAB = 12
INFO = EngineInfo(model_type="m", vocab_size=VOCAB, max_context=50, max_prompt_tokens=49, eos_token_ids=(3,))


def row(output: list[int]) -> dict[int, float]:
    """The model: log-probabilities that depend on all tokens."""
    weights = [random.Random(f"{output}/{token}").uniform(0, 5) for token in range(VOCAB)]
    total = math.log(sum(map(math.exp, weights)))
    return {token: weight - total for token, weight in enumerate(weights)}


async def ask(_name: str, output: list[int], number: int) -> StepOfBeam:
    best = sorted(row(output).items(), key=lambda item: -item[1])[:number]
    return StepOfBeam(Ranked([one for one, _ in best], [value for _, value in best]), TokenTiming(5, 2, 1.0), 0)


def search(**fields: Any) -> GenerationRequest:
    return GenerationRequest(request_id="r", prompt_token_ids=[1, 5], max_tokens=6, ignore_eos=True, **fields)


def penalised(request: GenerationRequest, output: list[int]) -> list[tuple[int, float]]:
    sampling = request.sampling
    scores = row(output)
    for token, bias in sampling.logit_bias:
        scores[token] += bias
    for token in {*request.prompt_token_ids, *output}:
        factor = sampling.repetition_penalty
        scores[token] = scores[token] * factor if scores[token] < 0 else scores[token] / factor
    for token in set(output):
        scores[token] -= sampling.presence_penalty + sampling.frequency_penalty * output.count(token)
    return sorted(scores.items(), key=lambda item: -item[1])


def plain_search(request: GenerationRequest) -> list[list[int]]:
    """Without ends: the width best continuations of each step, of all that there are."""
    beams: list[tuple[list[int], float]] = [([], 0.0)]
    for _ in range(request.max_tokens):
        grown = [([*out, token], score + more) for out, score in beams for token, more in penalised(request, out)]
        beams = sorted(grown, key=lambda beam: -beam[1])[: request.beam_width]
    return [out for out, _ in beams[: request.num_sequences]]


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(),
        SamplingParams(repetition_penalty=2.0),
        SamplingParams(repetition_penalty=0.5),
        SamplingParams(presence_penalty=1.5, frequency_penalty=0.5),
        SamplingParams(presence_penalty=-1.5),
        SamplingParams(logit_bias=((2, 4.0), (7, -9.0))),
        SamplingParams(logit_bias=tuple((token, -3.0) for token in range(4))),
    ],
    ids=str,
)
@pytest.mark.parametrize("width", [1, 2, 4])
async def test_it_finds_what_a_plain_search_finds(sampling: SamplingParams, width: int) -> None:
    request = search(beam_width=width, num_sequences=width, sampling=sampling)
    events = await run_search(request, INFO, request.max_tokens, ask)
    assert [event.token_ids for event in events] == plain_search(request)
    assert all(len(event.timings) == 6 for event in events)


async def test_no_more_values_than_needed() -> None:
    assert num_values(search(beam_width=2), 4, 3, 1000) == 4
    assert num_values(search(beam_width=2, sampling=SamplingParams(repetition_penalty=2.0)), 4, 3, 1000) == 4 + 2 + 3
    assert num_values(search(beam_width=2, sampling=SamplingParams(presence_penalty=-1.0)), 4, 3, 1000) == 1000


def test_too_many_values_are_refused() -> None:
    info = EngineInfo(model_type="m", vocab_size=200_000, max_context=50, max_prompt_tokens=49)
    check_search(search(beam_width=128), info)
    with pytest.raises(RequestInvalid, match="beam_width"):
        check_search(search(beam_width=128, sampling=SamplingParams(repetition_penalty=0.5)), info)


async def test_one_failure_ends_the_others() -> None:
    cancelled = []

    async def failing(name: str, output: list[int], number: int) -> StepOfBeam:
        if name == "1/1":
            raise ValueError(name)
        if name.startswith("1/"):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(name)
                raise
        return await ask(name, output, number)

    with pytest.raises(ValueError, match="1/1"):
        await run_search(search(beam_width=3, num_sequences=1), INFO, 6, failing)
    assert cancelled == ["1/0", "1/2"]
