"""Batches of made-up sequences, for what a runner does before its first request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mindserve_engine.native.batch import SampleRow, StepBatch
from mindserve_engine.types import SamplingParams

NUM_WRITTEN: Final = 3
"""Blocks that sequences of a check read."""
_NUM_CHECKED: Final = 8
"""Sequences of a check; more would make no other paths."""
_SAMPLING: Final = SamplingParams(temperature=1.0, top_k=50)


def trial_batch(
    lengths: Sequence[int],
    *,
    block_size: int,
    vocab_size: int,
    num_new: int | None = None,
    tables: Sequence[list[int]] | None = None,
) -> StepBatch:
    """Sequences of ``lengths`` tokens; the last ``num_new`` of each (``None``: all) are run, and each is sampled.

    ``tables``: the blocks of each, those at the ends for its new tokens alone; ``None``: the first blocks of the cache,
    one after the other."""
    batch = StepBatch()
    for number, (length, blocks) in enumerate(zip(lengths, tables or _side_by_side(lengths, block_size), strict=True)):
        positions = range(0 if num_new is None else length - num_new, length)
        batch.token_ids += [(7 * position + number) % vocab_size for position in positions]
        batch.positions += positions
        batch.slots += [blocks[p // block_size] * block_size + p % block_size for p in positions]
        batch.query_ends.append(len(batch.token_ids))
        batch.kv_lengths.append(length)
        batch.block_tables.append(blocks)
        batch.samples.append(_sample_row(number))
    return batch


def _side_by_side(lengths: Sequence[int], block_size: int) -> Iterator[list[int]]:
    first_block = 0
    for length in lengths:
        blocks = list(range(first_block, first_block - (-length // block_size)))
        first_block += len(blocks)
        yield blocks


def widest_batches(
    *, max_step_tokens: int, max_batch_size: int, max_positions: int, block_size: int, vocab_size: int
) -> list[StepBatch]:
    """The steps that take most memory: as many prompts as a step can have, the longest chunk at the end of the longest
    context, and the largest decode batch, with one such context. All its rows count like the longest where they are
    padded to it, and its blocks stay few enough to be there: operators may ask that a cache has as many as the lengths
    of a batch add up to. Each sequence has blocks of its own, from the first of the cache on."""
    num_sequences = min(max_batch_size, max_step_tokens)
    chunk = min(max_step_tokens, max_positions)
    each = min(max_positions, max_step_tokens // num_sequences)
    return [
        trial_batch(lengths, block_size=block_size, vocab_size=vocab_size, num_new=num_new)
        for lengths, num_new in (
            ([each] * num_sequences, each),
            ([max_positions], chunk),
            ([max_positions, *[1] * (num_sequences - 1)], 1),
        )
    ]


def written_blocks(*, num_blocks: int, num_tokens: int, block_size: int, vocab_size: int) -> Iterator[StepBatch]:
    """Prompts of ``num_tokens``, at most a block, one in each of the blocks that ``check_batches`` reads."""
    for block in sorted({*range(min(NUM_WRITTEN, num_blocks)), *_own_blocks(num_blocks)}):
        batch = trial_batch([num_tokens], block_size=block_size, vocab_size=vocab_size, tables=[[block]])
        batch.token_ids = [(token + 13 * block) % vocab_size for token in batch.token_ids]
        yield batch


def _own_blocks(num_blocks: int) -> list[int]:
    """Of the newest tokens of each sequence of a check."""
    rows = max(1, min(_NUM_CHECKED, num_blocks - NUM_WRITTEN))
    return [num_blocks - 1 - row for row in range(rows)]


def check_batches(
    *, num_rows: int, num_padding: int, num_blocks: int, max_context: int, block_size: int, vocab_size: int
) -> Iterator[StepBatch]:
    """Decode steps of ``num_rows``, at most eight: of a few tokens; on both sides of the borders of blocks; of contexts
    up to the longest. Each sequence has its newest token in a block of its own, at the end of the cache, and reads the
    ``NUM_WRITTEN`` first blocks in an order of its own before it. Together with ``num_padding`` rows of one block they
    are no longer than ``num_blocks``, though they share some: the later ones are cut for the first."""
    own_blocks = _own_blocks(num_blocks)[:num_rows]
    rows = len(own_blocks)
    longest = max_context if num_blocks > NUM_WRITTEN else min(max_context, block_size)
    middle = longest // 2
    for lengths in (
        range(3, 3 + rows),
        [block_size + 1, block_size, 2 * block_size + 1, 2 * block_size, block_size - 1, 7, 3 * block_size, 2],
        [longest, middle, middle + 1, longest - 1, block_size * 5 + 3, block_size * 4, longest, 1],
    ):
        wanted = [max(1, min(length, longest)) for length in lengths][:rows]
        chosen = _within(wanted, max(rows, num_blocks - num_padding), block_size)
        tables = []
        for row, (length, own) in enumerate(zip(chosen, own_blocks, strict=True)):
            read = [(place * (row + 1) + row) % NUM_WRITTEN for place in range(-(-length // block_size) - 1)]
            tables.append([*read, own])
        yield trial_batch(chosen, block_size=block_size, vocab_size=vocab_size, num_new=1, tables=tables)


def num_checked_rows(size: int, num_blocks: int) -> int:
    """Of a check of decode steps of ``size``: with a row of padding where there is room."""
    return max(1, min(size - 1, len(_own_blocks(num_blocks))))


def _within(lengths: Sequence[int], num_blocks: int, block_size: int) -> list[int]:
    """Cut so that they take ``num_blocks`` together, at least one each."""
    chosen: list[int] = []
    for number, length in enumerate(lengths):
        num_later = len(lengths) - number - 1
        chosen.append(min(length, (num_blocks - num_later) * block_size))
        num_blocks -= -(-chosen[-1] // block_size)
    return chosen


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
