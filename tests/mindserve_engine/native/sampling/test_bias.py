"""What is added to logits, and to nothing else."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mindserve_engine.native.sampling.bias import add_bias
from mindserve_engine.native.sampling.sampler import Sampler
from tests.mindserve_engine.native.sampling.rows import row

VOCAB = 23
biases = st.dictionaries(st.integers(0, VOCAB - 1), st.floats(-100, 100, width=32), max_size=6)


@settings(max_examples=100, deadline=None)
@given(st.lists(biases, min_size=1, max_size=4))
def test_each_row_gets_its_own(wishes: list[dict[int, float]]) -> None:
    logits = torch.randn(len(wishes), VOCAB, generator=torch.Generator().manual_seed(1))
    expected = logits.clone()
    for line, wish in enumerate(wishes):
        for token, bias in wish.items():
            expected[line, token] += bias
    add_bias(logits, [(line, row(logit_bias=tuple(wish.items()))) for line, wish in enumerate(wishes)])
    assert torch.equal(logits, expected)


def sampled(logits: torch.Tensor, **params: Any) -> Any:
    (one,) = Sampler().sample(logits[None].clone(), [row(**params)])
    return one


def test_the_bias_comes_before_temperature_and_changes_no_report() -> None:
    logits = torch.zeros(VOCAB)
    logits[3] = 5.0
    for temperature in (0.0, 1.0, 3.0):
        one = sampled(logits, temperature=temperature, logit_bias=((3, -100.0), (9, 100.0)))
        assert one.token_id == 9
    asked = row(temperature=0.0, logit_bias=((9, 100.0),))
    asked.num_logprobs = 1
    (one,) = Sampler().sample(logits[None].clone(), [asked])
    assert one.token_id == 9
    assert one.logprobs.top_token_ids == [3]
    assert math.isclose(one.logprobs.logprob, torch.log_softmax(logits, -1)[9].item(), rel_tol=1e-5)


def test_what_is_ruled_out_stays_so() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, 4] = -math.inf
    add_bias(logits, [(0, row(logit_bias=((4, 100.0),)))])
    assert logits[0, 4] == -math.inf


def test_a_row_without_a_bias_is_left_alone() -> None:
    logits = torch.randn(2, VOCAB)
    before = logits.clone()
    add_bias(logits, [(0, row()), (1, row(logit_bias=((2, 1.0),)))])
    assert torch.equal(logits[0], before[0])
