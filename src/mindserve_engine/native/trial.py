"""Batches of made-up sequences, for what a runner does before its first request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mindserve_engine.native.batch import SampleRow, StepBatch
from mindserve_engine.types import SamplingParams

_SAMPLING: Final = SamplingParams(temperature=1.0, top_k=50)


def trial_batch(lengths: Sequence[int], *, block_size: int, vocab_size: int, num_new: int | None = None) -> StepBatch:
    """Sequences of ``lengths`` tokens in the first blocks of the cache, one after the other; the last ``num_new`` of
    each (``None``: all) are run, and each is sampled."""
    batch = StepBatch()
    first_block = 0
    for number, length in enumerate(lengths):
        blocks = list(range(first_block, first_block + -(-length // block_size)))
        first_block += len(blocks)
        positions = range(0 if num_new is None else length - num_new, length)
        batch.token_ids += [(7 * position + number) % vocab_size for position in positions]
        batch.positions += positions
        batch.slots += [blocks[p // block_size] * block_size + p % block_size for p in positions]
        batch.query_ends.append(len(batch.token_ids))
        batch.kv_lengths.append(length)
        batch.block_tables.append(blocks)
        batch.samples.append(_sample_row(number))
    return batch


def num_blocks_of(lengths: Sequence[int], block_size: int) -> int:
    """Blocks that ``trial_batch`` uses."""
    return sum(-(-length // block_size) for length in lengths)


def _sample_row(number: int) -> SampleRow:
    """With an identity that no sequence of a request has."""
    return SampleRow(
        sequence_id=-1 - number,
        row=number,
        params=_SAMPLING,
        index=0,
        position=0,
        prompt_token_ids=[0],
        output_token_ids=[],
    )
