"""The head's best candidates are exact, however coarse the product below them is."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mindserve_engine.native.models.head import RefinedHead
from mindserve_engine.native.weights.quantised import Int8Weight, LinearWeight, widen

HIDDEN, VOCABULARY = 64, 300


def _coarse(weight: Tensor) -> RefinedHead:
    """A product as bfloat16 gives it."""
    return RefinedHead(lambda x: torch.nn.functional.linear(x.bfloat16(), weight.bfloat16()), weight)


def test_the_order_at_the_top_is_that_of_float64() -> None:
    torch.manual_seed(0)
    weight, x = torch.randn(VOCABULARY, HIDDEN), torch.randn(20, HIDDEN) * 4
    logits = _coarse(weight)(x)
    exact = x.double() @ weight.double().T
    best = exact.topk(4).indices
    assert torch.equal(logits.topk(4).indices, best)
    torch.testing.assert_close(logits.gather(1, best).double(), exact.gather(1, best), rtol=1e-5, atol=1e-5)


def test_a_near_tie_that_bfloat16_turns_round() -> None:
    weight = torch.zeros(VOCABULARY, HIDDEN)
    weight[7, 0], weight[3, 0] = 1.001, 1.0
    x = torch.zeros(1, HIDDEN)
    x[0, 0] = 25.0
    assert (x.bfloat16() @ weight.bfloat16().T).argmax() == 3
    assert _coarse(weight)(x).argmax() == 7


@pytest.mark.parametrize("num_tokens", [1, 5, VOCABULARY])
def test_any_vocabulary_and_no_rows(num_tokens: int) -> None:
    head = _coarse(torch.randn(num_tokens, HIDDEN))
    assert head(torch.randn(0, HIDDEN)).shape == (0, num_tokens)
    assert head(torch.randn(2, HIDDEN)).shape == (2, num_tokens)


def test_eight_bit_weights_are_refined_by_what_they_stand_for() -> None:
    torch.manual_seed(1)
    weight: LinearWeight = Int8Weight.quantise(torch.randn(VOCABULARY, HIDDEN))
    x = torch.randn(5, HIDDEN)
    logits = RefinedHead(lambda rows: rows.bfloat16() @ widen(weight).bfloat16().T, weight)(x)
    exact = x @ widen(weight).T
    best = exact.topk(4).indices
    torch.testing.assert_close(logits.gather(1, best), exact.gather(1, best))


def test_what_is_not_finite_stays_so() -> None:
    x = torch.randn(2, HIDDEN)
    x[1, 0] = float("nan")
    logits = _coarse(torch.randn(VOCABULARY, HIDDEN))(x)
    assert logits[0].isfinite().all()
    assert not logits[1].isfinite().any()
