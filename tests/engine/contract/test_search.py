"""Beam search finds what transformers' finds."""

from __future__ import annotations

from typing import Any

import pytest

from mindserve_engine.types import FinishReason, SamplingParams
from tests.engine.beam_reference import beams
from tests.engine.contract.subjects import ADAPTER, PROMPT, Subject, tokens_of
from tests.engine.contract.test_sampling import only_computed, reference

pytestmark = pytest.mark.asyncio(loop_scope="session")
NUM_TOKENS = 7


def expected(
    subject: Subject, width: int, eos: list[int] | None = None, **settings: Any
) -> list[tuple[list[int], float]]:
    model = reference(subject.model)
    return beams(model, PROMPT, width, eos=eos, pad=0, num_tokens=NUM_TOKENS, **settings)


async def test_scores_come_best_first(subject: Subject) -> None:
    events = await subject.run(max_tokens=4, beam_width=4, num_sequences=3, ignore_eos=True)
    scores = [event.beam_score for event in events if event.beam_score is not None]
    assert [event.index for event in events] == [0, 1, 2]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 3
    assert all(len(event.timings) == len(event.token_ids) == 4 for event in events)
    await subject.idle()


@pytest.mark.parametrize("width", [2, 3, 5])
async def test_hypotheses_are_transformers(subject: Subject, width: int) -> None:
    only_computed(subject)
    events = await subject.run(max_tokens=NUM_TOKENS, beam_width=width, num_sequences=width, ignore_eos=True)
    wanted = expected(subject, width)
    assert tokens_of(events) == [tokens for tokens, _ in wanted]
    assert [event.beam_score for event in events] == pytest.approx([score for _, score in wanted], abs=2e-3)
    assert {event.finish_reason for event in events} == {FinishReason.LENGTH}


async def test_a_search_of_one_beam_is_greedy(subject: Subject) -> None:
    greedy = await subject.tokens(max_tokens=4, ignore_eos=True)
    assert await subject.tokens(max_tokens=4, beam_width=1, ignore_eos=True) == greedy


@pytest.mark.parametrize("penalty", [1.5, 0.7])
async def test_penalties_count_on_log_probabilities(subject: Subject, penalty: float) -> None:
    only_computed(subject)
    events = await subject.run(
        max_tokens=NUM_TOKENS,
        beam_width=3,
        num_sequences=3,
        ignore_eos=True,
        sampling=SamplingParams(repetition_penalty=penalty),
    )
    wanted = expected(subject, 3, repetition_penalty=penalty)
    assert tokens_of(events) == [tokens for tokens, _ in wanted]
    assert [event.beam_score for event in events] == pytest.approx([score for _, score in wanted], abs=2e-3)


async def test_hypotheses_that_end(subject: Subject) -> None:
    """A bias makes the model's end likely, so that hypotheses of several lengths are compared."""
    only_computed(subject)
    eos = subject.engine.info.eos_token_ids
    bias = {(token,): 8.0 for token in eos}
    sampling = SamplingParams(logit_bias=tuple((token, 8.0) for token in eos))
    events = await subject.run(max_tokens=NUM_TOKENS, beam_width=3, num_sequences=3, sampling=sampling)
    wanted = expected(subject, 3, eos=list(eos), sequence_bias=bias)
    assert tokens_of(events) == [tokens for tokens, _ in wanted]
    assert [event.beam_score for event in events] == pytest.approx([score for _, score in wanted], abs=2e-3)
    assert FinishReason.EOS in {event.finish_reason for event in events}


async def test_logprobs_of_beams(subject: Subject) -> None:
    events = await subject.run(max_tokens=4, beam_width=3, num_sequences=2, ignore_eos=True, num_logprobs=2)
    for event in events:
        assert [len(entry.top_token_ids) for entry in event.logprobs] == [2] * 4
        if subject.computes:
            total = sum(entry.logprob for entry in event.logprobs)
            assert event.beam_score == pytest.approx(total / 4, abs=1e-4)


async def test_beams_of_an_adapter(subject: Subject) -> None:
    only_computed(subject)
    plain = await subject.tokens(max_tokens=4, beam_width=2, ignore_eos=True)
    assert await subject.tokens(max_tokens=4, beam_width=2, ignore_eos=True, adapter=ADAPTER) != plain
