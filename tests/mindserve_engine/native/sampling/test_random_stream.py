"""The random stream is a function of seed, sequence and position."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mindserve_engine.native.sampling.random_stream import uniform
from mindserve_engine.types import SEED_MAX


def test_the_stream_never_changes() -> None:
    """A seed promises the same text tomorrow; these numbers are numpy's Philox 4x64 and must stay."""
    words = np.random.Philox(key=np.array([7, 2], dtype=np.uint64), counter=5).random_raw(1)
    assert uniform(seed=7, index=2, position=5) == (int(words[0]) >> 11) / 2**53
    assert uniform(seed=0, index=0, position=0) == pytest.approx(0.011546754286331562, rel=1e-12)


@given(st.integers(0, SEED_MAX), st.integers(0, 127), st.integers(0, 2**31))
def test_in_the_unit_interval_and_repeatable(seed: int, index: int, position: int) -> None:
    first = uniform(seed=seed, index=index, position=position)
    assert 0.0 <= first < 1.0
    assert first == uniform(seed=seed, index=index, position=position)


def test_all_64_bits_of_the_seed_count() -> None:
    seeds = [0, 1, 2**31, 2**32, 2**53, 2**53 + 1, 2**63, SEED_MAX - 1, SEED_MAX]
    assert len({uniform(seed=seed, index=0, position=0) for seed in seeds}) == len(seeds)


@pytest.mark.parametrize("vary", ["seed", "index", "position"])
def test_uniform_along_each_coordinate(vary: str) -> None:
    fixed = {"seed": 3, "index": 1, "position": 4}
    numbers = [uniform(**{**fixed, vary: value}) for value in range(2000)]
    assert stats.kstest(numbers, "uniform").pvalue > 0.001
    assert abs(float(np.corrcoef(numbers[:-1], numbers[1:])[0, 1])) < 0.08
