"""Sizes of decode graphs."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from mindserve_engine.native.device.graphs import batch_sizes, num_scratch_blocks


@given(st.integers(1, 5000))
def test_sizes_double_and_end_with_the_largest_itself(largest: int) -> None:
    sizes = batch_sizes(largest)
    assert sizes[0] == 1
    assert sizes[-1] == largest, "a batch that has no graph would be the slowest"
    assert all(small < large <= 2 * small for small, large in itertools.pairwise(sizes))


@given(st.integers(0, 5000), st.sampled_from([16, 128]))
def test_padding_rows_have_slots_of_their_own(largest: int, block_size: int) -> None:
    assert largest <= num_scratch_blocks(largest, block_size) * block_size < largest + block_size
