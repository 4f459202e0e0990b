"""Where the tokens of one step lie in the cache, for kernels that find their way through blocks themselves."""

from __future__ import annotations

from ctypes import Structure
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mindserve_engine.native.batch import StepBatch

IntArray = NDArray[np.int64]


@dataclass(slots=True)
class BlockPlan:
    """Arrays without gaps: the kernels read them by address."""

    slots: IntArray
    """[T] where each token's key and value go."""
    starts: IntArray
    """[B] first row of each sequence in the batch."""
    num_new: IntArray
    """[B] its rows."""
    lengths: IntArray
    """[B] its tokens in the cache when they are written."""
    tables: IntArray
    """[B, n] its block numbers; those beyond its end are not to be read."""
    step: Structure | None = None
    """What all layers of the step have in common, for ``cpu_layer``."""


def plan_blocks(batch: StepBatch) -> BlockPlan:
    ends = np.asarray(batch.query_ends, dtype=np.int64)
    starts = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1]])
    tables = np.zeros((len(ends), max(map(len, batch.block_tables))), dtype=np.int64)
    for line, blocks in zip(tables, batch.block_tables, strict=True):
        line[: len(blocks)] = blocks
    return BlockPlan(
        slots=np.asarray(batch.slots, dtype=np.int64),
        starts=starts,
        num_new=ends - starts,
        lengths=np.asarray(batch.kv_lengths, dtype=np.int64),
        tables=tables,
    )
