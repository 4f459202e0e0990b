"""Turns a schedule into the flattened batch the runner works on."""

from __future__ import annotations

import numpy as np

from mindserve_engine.media.positions import Positions
from mindserve_engine.native.batch import SampleRow, StepBatch
from mindserve_engine.native.scheduler import Schedule
from mindserve_engine.native.sequence import Sequence


def flatten(schedule: Schedule, block_size: int) -> StepBatch:
    """The step's tokens, sequence after sequence; those whose last token is among them are sampled."""
    batch = StepBatch()
    for row, (sequence, num_tokens) in enumerate(schedule.items()):
        start, end = sequence.num_computed, sequence.num_computed + num_tokens
        block_ids = sequence.block_ids
        batch.token_ids += sequence.token_ids[start:end]
        batch.positions += range(start, end)
        batch.slots += [
            block_ids[position // block_size] * block_size + position % block_size for position in range(start, end)
        ]
        batch.query_ends.append(len(batch.token_ids))
        batch.kv_lengths.append(end)
        batch.block_tables.append(block_ids)
        if end == len(sequence.token_ids):
            batch.samples += [_sample_row(sequence, row, draw) for draw in range(sequence.num_draws)]
    _add_media(batch, schedule)
    if any(sequence.request.adapter is not None for sequence in schedule):
        batch.adapters = [sequence.request.adapter for sequence in schedule]
    return batch


def _add_media(batch: StepBatch, schedule: Schedule) -> None:
    if all(sequence.media is None for sequence in schedule):
        return
    parts: list[Positions] = []
    row = 0
    for sequence, num_tokens in schedule.items():
        start, end = sequence.num_computed, sequence.num_computed + num_tokens
        grid = None
        if sequence.media is not None:
            batch.overlays += sequence.media.overlays(start, end, row)
            grid = sequence.media.positions_of(start, end)
        parts.append(np.broadcast_to(np.arange(start, end), (3, num_tokens)) if grid is None else grid)
        row += num_tokens
    if any(sequence.media is not None and sequence.media.positions is not None for sequence in schedule):
        batch.grid_positions = np.concatenate(parts, axis=1)


def _sample_row(sequence: Sequence, row: int, draw: int) -> SampleRow:
    request, search = sequence.request, sequence.search
    return SampleRow(
        sequence_id=sequence.sequence_id,
        row=row,
        params=request.sampling,
        index=sequence.index + draw,
        position=len(sequence.output_token_ids),
        prompt_token_ids=request.prompt_token_ids,
        output_token_ids=sequence.output_token_ids,
        num_logprobs=request.num_logprobs,
        num_candidates=0 if search is None else search.num_candidates,
        grammar=sequence.grammar,
    )
