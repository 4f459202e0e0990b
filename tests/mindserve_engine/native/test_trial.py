"""Batches of made-up sequences."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mindserve_engine.native.batch import StepBatch
from mindserve_engine.native.trial import check_batches, num_checked_rows, widest_batches

BLOCK_SIZE = 16


def num_blocks_read(batch: StepBatch) -> int:
    for length, blocks in zip(batch.kv_lengths, batch.block_tables, strict=True):
        assert len(blocks) == -(-length // BLOCK_SIZE)
    return sum(map(len, batch.block_tables))


@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 500))
def test_the_widest_steps_have_blocks_of_their_own(tokens: int, sequences: int, positions: int) -> None:
    for batch in widest_batches(
        max_step_tokens=tokens, max_batch_size=sequences, max_positions=positions, block_size=BLOCK_SIZE, vocab_size=9
    ):
        assert sorted(block for blocks in batch.block_tables for block in blocks) == [*range(num_blocks_read(batch))]
        assert len({*batch.slots}) == len(batch.token_ids) <= tokens
    assert batch.kv_lengths[0] == positions


@given(st.data(), st.integers(1, 60), st.integers(1, 900))
def test_a_check_reads_no_more_blocks_than_there_are(data: st.DataObject, num_blocks: int, max_context: int) -> None:
    size = data.draw(st.integers(1, num_blocks))
    rows = num_checked_rows(size, num_blocks)
    assert 1 <= rows <= min(8, max(1, size - 1))
    num_padding = size - rows
    context = min(max_context, num_blocks * BLOCK_SIZE)
    for batch in check_batches(
        num_rows=rows,
        num_padding=num_padding,
        num_blocks=num_blocks,
        max_context=context,
        block_size=BLOCK_SIZE,
        vocab_size=9,
    ):
        assert len(batch.kv_lengths) == len({*batch.slots}) == rows
        assert num_blocks_read(batch) + num_padding <= num_blocks
        assert all(block < num_blocks for blocks in batch.block_tables for block in blocks)
        assert all(
            slot // BLOCK_SIZE == blocks[-1] for slot, blocks in zip(batch.slots, batch.block_tables, strict=True)
        )
    if num_blocks > 3 and size <= 2:
        assert batch.kv_lengths[0] == min(context, (num_blocks - num_padding) * BLOCK_SIZE)
