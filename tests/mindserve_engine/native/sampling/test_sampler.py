"""The sampler: its distribution, its limits, and that rows do not feel each other."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from mindserve_engine.native.sampling.random_stream import uniform
from mindserve_engine.native.sampling.sampler import Sampler
from mindserve_engine.types import SEED_MAX
from tests.mindserve_engine.native.sampling.rows import row

VOCAB = 700
NUM_DRAWS = 4000


def logits_row(seed: int = 0, *, spread: float = 3.0, vocab: int = VOCAB) -> Tensor:
    return torch.randn(vocab, generator=torch.Generator().manual_seed(seed)) * spread


def draws(logits: Tensor, num_draws: int = NUM_DRAWS, **params: Any) -> list[int]:
    """One row drawn at many positions."""
    rows = [row(position=position, **params) for position in range(num_draws)]
    return [sampled.token_id for sampled in Sampler().sample(logits.expand(num_draws, -1).clone(), rows)]


def reference_probabilities(logits: Tensor, *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> Any:
    """What transformers' warpers leave, in their order."""
    warpers = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    if top_k:
        warpers.append(TopKLogitsWarper(top_k))
    if top_p < 1:
        warpers.append(TopPLogitsWarper(top_p))
    return warpers(torch.zeros((1, 1), dtype=torch.int64), logits[None].double())[0].softmax(-1).numpy()


def chi_square_p_value(observed: list[int], probabilities: Any) -> float:
    """Against the expected counts, rare tokens put together."""
    counts = np.bincount(observed, minlength=len(probabilities)).astype(float)
    expected = probabilities * len(observed)
    rare = expected < 5
    observed_bins, expected_bins = counts[~rare], expected[~rare]
    if expected[rare].sum() >= 5:
        observed_bins = np.append(observed_bins, counts[rare].sum())
        expected_bins = np.append(expected_bins, expected[rare].sum())
    scaled = expected_bins * observed_bins.sum() / expected_bins.sum()
    return float(stats.chisquare(observed_bins, scaled).pvalue)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"temperature": 0.6},
        {"temperature": 2.5},
        {"top_k": 12},
        {"top_k": 300},
        {"top_p": 0.8},
        {"top_k": 50, "top_p": 0.7},
        {"temperature": 1.7, "top_k": 90, "top_p": 0.95},
    ],
    ids=str,
)
def test_chi_square_against_softmax(params: dict[str, Any]) -> None:
    logits = logits_row(spread=1.5)
    observed = draws(logits, seed=11, **params)
    probabilities = reference_probabilities(logits, **params)
    assert all(probabilities[token] > 0 for token in observed), "a token was drawn that the filters remove"
    assert chi_square_p_value(observed, probabilities) > 0.001


def test_nucleus_of_a_flat_distribution_over_a_large_vocabulary() -> None:
    """Far more candidates than are looked at first."""
    logits = logits_row(spread=0.1, vocab=5000)
    observed = draws(logits, top_p=0.9, seed=2)
    probabilities = reference_probabilities(logits, top_p=0.9)
    assert all(probabilities[token] > 0 for token in observed)
    assert len(set(observed)) > 2000


def test_greedy_takes_the_largest() -> None:
    logits = torch.stack([logits_row(seed) for seed in range(5)])
    sampled = Sampler().sample(logits.clone(), [row(number, temperature=0.0) for number in range(5)])
    assert [entry.token_id for entry in sampled] == logits.argmax(-1).tolist()


@pytest.mark.parametrize("temperature", [1e-6, 1e-30, 1e-320, 5e-324])
def test_tiny_temperatures_are_greedy(temperature: float) -> None:
    logits = logits_row() * 1e4
    assert set(draws(logits, 50, temperature=temperature)) == {int(logits.argmax())}
    assert set(draws(logits, 50, temperature=temperature, top_k=5, top_p=0.5)) == {int(logits.argmax())}


def test_huge_temperature_is_uniform() -> None:
    observed = draws(logits_row(), temperature=1e30)
    assert chi_square_p_value(observed, np.full(VOCAB, 1 / VOCAB)) > 0.001


@pytest.mark.parametrize("temperature", [1e38, 1e39, 1e308])
def test_huge_temperature_draws_no_masked_token(temperature: float) -> None:
    logits = torch.full((VOCAB,), float("-inf"))
    logits[[3, 500]] = torch.tensor([4.0, -4.0])
    assert set(draws(logits, 100, temperature=temperature)) == {3, 500}
    assert set(draws(logits, 100, temperature=temperature, top_k=90, top_p=0.9)) == {3, 500}


@pytest.mark.parametrize("repetition_penalty", [5e-324, 1e308])
@pytest.mark.parametrize("temperature", [0.0, 5e-324, 1.0, 1e308])
def test_extreme_settings_together_give_a_token(temperature: float, repetition_penalty: float) -> None:
    sample = row(
        temperature=temperature,
        repetition_penalty=repetition_penalty,
        presence_penalty=-1e308,
        frequency_penalty=1e308,
        top_p=5e-324,
        prompt=range(VOCAB),
        output=[1, 1, 2],
    )
    (result,) = Sampler().sample(logits_row()[None], [sample])
    assert result.failure is None


@pytest.mark.parametrize(("top_p", "num_kept"), [(0.25, 1), (0.26, 2), (0.5, 2), (0.75, 3), (0.76, 4), (1.0, 4)])
@pytest.mark.parametrize("vocab", [100, 3000])
@pytest.mark.parametrize("top_k", [0, 50])
def test_nucleus_ends_where_its_probability_is_reached(top_p: float, num_kept: int, vocab: int, top_k: int) -> None:
    """Four tokens of exactly a quarter each: the one that reaches top_p is the last."""
    logits = torch.full((vocab,), float("-inf"))
    logits[[7, 30, 60, 99]] = 2.0
    assert len(set(draws(logits, 200, top_p=top_p, top_k=top_k))) == num_kept


@pytest.mark.parametrize("params", [{"top_p": 1e-6}, {"top_p": 1e-300}, {"top_k": 1}], ids=str)
def test_one_candidate_always_stays(params: dict[str, Any]) -> None:
    logits = logits_row()
    assert set(draws(logits, 100, **params)) == {int(logits.argmax())}


@pytest.mark.parametrize("top_k", [VOCAB, VOCAB + 1, 2**31 - 1])
def test_top_k_above_the_vocabulary_keeps_all(top_k: int) -> None:
    logits = logits_row()
    assert draws(logits, 200, top_k=top_k) == draws(logits, 200)


def test_top_k_keeps_exactly_k_of_equals() -> None:
    observed = draws(torch.zeros(VOCAB), 1000, top_k=7)
    assert len(set(observed)) == 7


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_broken_row_fails_alone(bad: float) -> None:
    logits = torch.stack([logits_row(seed) for seed in range(4)])
    logits[1, 17] = bad
    logits[2] = float("-inf")
    rows = [row(number, temperature=temperature) for number, temperature in enumerate((1.0, 1.0, 0.0, 0.0))]
    results = Sampler().sample(logits.clone(), rows)
    assert [result.failure is None for result in results] == [True, False, False, True]
    assert results[3].token_id == int(logits[3].argmax())


def test_a_token_with_probability_zero_is_never_drawn() -> None:
    logits = torch.full((VOCAB,), float("-inf"))
    logits[[3, 500]] = 0.0
    assert set(draws(logits, 300)) == {3, 500}
    assert set(draws(logits, 300, top_k=100, top_p=0.999)) == {3, 500}


mixed_params = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.3, 1.0, 1.7]),
        "top_k": st.sampled_from([0, 1, 5, 64, 65, 200, 1000]),
        "top_p": st.sampled_from([1e-6, 0.3, 0.9, 1.0]),
        "seed": st.integers(0, SEED_MAX),
        "repetition_penalty": st.sampled_from([1.0, 1.3]),
        "frequency_penalty": st.sampled_from([0.0, 0.7]),
        "presence_penalty": st.sampled_from([0.0, -0.4]),
    }
)


@settings(max_examples=40, deadline=None)
@given(st.lists(mixed_params, min_size=2, max_size=9), st.integers(0, 10**6))
def test_a_row_draws_the_same_alone_and_beside_others(settings_of_rows: list[dict[str, Any]], noise: int) -> None:
    logits = torch.stack([logits_row(noise + number) for number in range(len(settings_of_rows))])
    rows = [
        row(number, output=[number, 3, 3], prompt=[1, 2], **params) for number, params in enumerate(settings_of_rows)
    ]
    together = Sampler().sample(logits.clone(), rows)
    alone = [Sampler().sample(logits[[number]].clone(), [rows[number]])[0] for number in range(len(rows))]
    assert together == alone


def test_what_top_p_leaves_of_a_large_vocabulary_is_the_same_alone_and_beside_others() -> None:
    """Limits that some token just reaches: one rounding more or less in the sum of all, and another is the last."""
    latest = max(range(20_000), key=lambda position: uniform(seed=1, index=0, position=position))
    for seed in range(2):
        logits = logits_row(seed, vocab=1 << 16, spread=6.0)
        weights = (logits - logits.max()).exp().sort(descending=True).values.double()
        reached = (weights.cumsum(dim=-1) / weights.sum()).numpy()[:12, None]
        limits = reached + np.spacing(reached) * np.arange(-2, 3)
        rows = [row(position=latest, seed=1, top_p=float(limit)) for limit in limits.flat]
        together = Sampler().sample(logits.repeat(len(rows), 1), rows)
        assert [Sampler().sample(logits[None].clone(), [one])[0] for one in rows] == together


@pytest.mark.parametrize("wish", ["num_logprobs", "num_candidates"])
def test_the_order_of_equals_does_not_depend_on_what_others_want(wish: str) -> None:
    logits = torch.zeros(300)
    logits[::2] = 1.0  # as a tiny repetition penalty makes them, or a coarse float format
    alone, *together = (
        Sampler().sample(logits.expand(len(nums), -1).clone(), [replace(row(), **{wish: num}) for num in nums])[0]
        for nums in ([5], [5, 20], [5, 1, 0, 200])
    )
    assert together == [alone, alone]


def test_draws_depend_on_seed_index_and_position_only() -> None:
    logits = logits_row(spread=0.5)
    base = {"seed": 5, "index": 0, "position": 0}
    tokens = {}
    for change in ({}, {"seed": 6}, {"index": 1}, {"position": 1}):
        rows = [row(sequence_id, **{**base, **change}) for sequence_id in (0, 123)]
        pair = Sampler().sample(logits.expand(2, -1).clone(), rows)
        assert pair[0] == pair[1], "the sequence's number must not matter"
        tokens[str(change)] = pair[0].token_id
    assert len(set(tokens.values())) == len(tokens)


def test_state_is_dropped_and_rebuilt() -> None:
    """Forgetting a sequence changes nothing: its counts come back from its tokens."""
    logits = logits_row()[None]
    kept, forgetful = Sampler(), Sampler()
    output: list[int] = []
    for _ in range(30):
        sample = row(9, prompt=[4, 4], output=output, temperature=0.0, frequency_penalty=0.9, repetition_penalty=1.2)
        token = kept.sample(logits.clone(), [sample])[0].token_id
        assert forgetful.sample(logits.clone(), [sample])[0].token_id == token
        forgetful.forget(9)
        output.append(token)
    assert max(Counter(output).values()) < 10, "the penalty does nothing"
    forgetful.forget(12345)
