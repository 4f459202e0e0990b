"""Penalties against formulas of others: transformers' processor for repetition, OpenAI's for presence and frequency."""

from __future__ import annotations

import sys
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import RepetitionPenaltyLogitsProcessor

from mindserve_engine.native.sampling.penalties import TokenHistory, has_penalties, penalise
from mindserve_engine.types import SamplingParams
from tests.mindserve_engine.native.sampling.rows import row

VOCAB = 40
tokens = st.lists(st.integers(0, VOCAB - 1), max_size=30)


def expected_logits(logits: Tensor, prompt: list[int], output: list[int], params: SamplingParams) -> Tensor:
    """One row: transformers for repetition, then ``mu - c > 0 * presence - c * frequency``."""
    ids = torch.tensor([prompt + output])
    out = RepetitionPenaltyLogitsProcessor(params.repetition_penalty)(ids, logits[None].clone())[0]
    for token, count in Counter(output).items():
        out[token] -= params.presence_penalty + count * params.frequency_penalty
    return out


def penalised(logits: Tensor, rows: list[tuple[list[int], list[int], SamplingParams]]) -> Tensor:
    out = logits.clone()
    lines = []
    for line, (prompt, output, params) in enumerate(rows):
        history = TokenHistory(prompt)
        history.catch_up(output)
        sample = row(prompt=prompt, output=output)
        sample.params = params
        lines.append((line, sample, history))
    penalise(out, lines)
    return out


params_strategy = st.builds(
    SamplingParams,
    repetition_penalty=st.floats(0.05, 2.0),
    presence_penalty=st.floats(-2, 2),
    frequency_penalty=st.floats(-2, 2),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(tokens.filter(bool), tokens, params_strategy), min_size=1, max_size=4), st.integers(0, 999))
def test_equals_the_formulas(rows: list[tuple[list[int], list[int], SamplingParams]], seed: int) -> None:
    logits = torch.randn(len(rows), VOCAB, generator=torch.Generator().manual_seed(seed)) * 4
    actual = penalised(logits, rows)
    for line, (prompt, output, params) in enumerate(rows):
        torch.testing.assert_close(actual[line], expected_logits(logits[line], prompt, output, params))


@pytest.mark.parametrize(
    ("params", "touches_prompt"),
    [
        (SamplingParams(repetition_penalty=1.5), True),
        (SamplingParams(presence_penalty=1.5), False),
        (SamplingParams(frequency_penalty=1.5), False),
    ],
)
def test_only_repetition_sees_the_prompt(params: SamplingParams, *, touches_prompt: bool) -> None:
    logits = torch.full((1, VOCAB), 3.0)
    changed = penalised(logits, [([5], [9, 9], params)])[0] != 3.0
    assert changed.nonzero()[:, 0].tolist() == ([5, 9] if touches_prompt else [9])


def test_counting_step_by_step_equals_counting_at_once() -> None:
    """The state after many calls equals the state rebuilt from scratch, as after a preemption."""
    output = [3, 8, 3, 70, 8, 3, *range(100, 300)]
    stepwise = TokenHistory([1, 2, 3])
    for length in range(len(output) + 1):
        stepwise.catch_up(output[:length])
    at_once = TokenHistory([1, 2, 3])
    at_once.catch_up(output)
    assert dict(zip(stepwise.token_ids, stepwise.num_generated, strict=True)) == dict(
        zip(at_once.token_ids, at_once.num_generated, strict=True)
    )
    assert dict(zip(at_once.token_ids, at_once.num_generated, strict=True))[3] == 3


EXTREMES = [0.0, 5e-324, 1e-45, 1.0, 1e45, sys.float_info.max]
"""Of the size of penalties: all that are finite."""
penalties = st.sampled_from([*EXTREMES, *(-size for size in EXTREMES)])


@pytest.mark.parametrize("repetition_penalty", EXTREMES[1:])
@given(logit=st.floats(width=32, allow_nan=False, allow_infinity=False), presence=penalties, frequency=penalties)
def test_extreme_penalties_stay_finite(
    repetition_penalty: float, logit: float, presence: float, frequency: float
) -> None:
    params = SamplingParams(
        repetition_penalty=repetition_penalty, presence_penalty=presence, frequency_penalty=frequency
    )
    logits = torch.full((1, VOCAB), logit)
    changed = penalised(logits, [([5], [6, 7, 7, 7], params)])
    assert changed.isfinite().all()
    assert torch.equal(changed[0, 8:], logits[0, 8:])


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (SamplingParams(repetition_penalty=5e-324), [1.0, 0.0, 0.0]),
        (SamplingParams(repetition_penalty=sys.float_info.max), [0.0, -1.0, 0.0]),
        (SamplingParams(presence_penalty=sys.float_info.max), [-1.0, -1.0, -1.0]),
        (SamplingParams(frequency_penalty=-sys.float_info.max), [1.0, 1.0, 1.0]),
    ],
    ids=str,
)
def test_extreme_penalties_end_at_the_largest_number(params: SamplingParams, expected: list[float]) -> None:
    """A positive, a negative and no logit, each generated twice."""
    logits = torch.tensor([[3.0, -3.0, 0.0]])
    changed = penalised(logits, [([0], [0, 1, 2, 0, 1, 2], params)])[0]
    torch.testing.assert_close(changed / torch.finfo(torch.float32).max, torch.tensor(expected))


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), float("-inf")])
def test_what_the_model_broke_stays_broken(broken: float) -> None:
    logits = torch.full((1, VOCAB), 1.0)
    logits[0, 5] = broken
    params = SamplingParams(repetition_penalty=2.0, presence_penalty=1.0, frequency_penalty=1e300)
    assert str(float(penalised(logits, [([5], [5], params)])[0, 5])) == str(broken)


def test_neutral_values_are_no_penalties() -> None:
    assert not has_penalties(SamplingParams())
    assert has_penalties(SamplingParams(repetition_penalty=0.9))
    assert has_penalties(SamplingParams(presence_penalty=-0.1))
    assert has_penalties(SamplingParams(frequency_penalty=0.1))
