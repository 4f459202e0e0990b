"""A step's numbers packed into one buffer, so that one copy brings them all to a device with memory of its own.

The buffer holds what is [n] int64 first and what is int32 behind it; tensors on the device are views of it. One that is
filled again and again at the same shape stays at one address, as graphs need it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mindserve_engine.native.batch import StepBatch
from mindserve_engine.native.device.base import DeviceBatch
from mindserve_engine.native.device.placing import HostBuffer
from mindserve_engine.native.lora.rows import rows_by_adapter


@dataclass(slots=True)
class PagedPlan:
    """Where the tokens of a step lie in the cache: ``DeviceBatch.plan`` of devices that attend over block tables."""

    slots: Tensor
    """[T] int32."""
    block_table: Tensor
    """[B, W] int32; columns beyond a sequence's end are 0 and not read."""
    query_starts: Tensor
    """[B + 1] int32: 0, then the cumulative ends."""
    kv_lengths: Tensor
    """[B] int32."""
    host_query_ends: list[int]
    host_kv_lengths: list[int]
    """Both [B], for operators that want them as numbers of the host."""


class Packing:
    """The places of a step's numbers in a buffer."""

    def __init__(self, batch: StepBatch, rows: list[int], *, table_width: int | None = None) -> None:
        """``rows``: those of [T] whose successors are sampled."""
        self._num_tokens, self._num_sequences = len(batch.token_ids), len(batch.query_ends)
        self._num_rows = len(rows)
        self._coordinates = 1 if batch.grid_positions is None else 3
        self._width = max(map(len, batch.block_tables)) if table_width is None else table_width
        adapters = rows_by_adapter(batch)
        self._adapters = {name: len(numbers) for name, numbers in adapters.items()}
        self._num_wide = self._num_tokens * (1 + self._coordinates) + len(rows) + sum(self._adapters.values())
        num_narrow = self._num_tokens + self._num_sequences * (self._width + 2) + 1
        self.num_words = self._num_wide + -(-num_narrow // 2)

    def fill(self, buffer: NDArray[np.int64], batch: StepBatch, rows: list[int]) -> None:
        """A batch of the shape that this was made for."""
        positions = batch.positions if batch.grid_positions is None else batch.grid_positions.reshape(-1)
        adapters = [np.asarray(numbers, dtype=np.int64) for numbers in rows_by_adapter(batch).values()]
        wide = [np.asarray(part, dtype=np.int64) for part in (batch.token_ids, positions, rows)]
        np.concatenate([*wide, *adapters], out=buffer[: self._num_wide])
        table = np.zeros((self._num_sequences, self._width), dtype=np.int32)
        for line, blocks in zip(table, batch.block_tables, strict=True):
            line[: len(blocks)] = blocks[: self._width]
        narrow = [batch.slots, table.reshape(-1), [0], batch.query_ends, batch.kv_lengths]
        packed = np.concatenate([np.asarray(part, dtype=np.int32) for part in narrow])
        buffer[self._num_wide :].view(np.int32)[: len(packed)] = packed

    def view(self, buffer: Tensor, batch: StepBatch) -> DeviceBatch:
        """[num_words] int64 on the device, as tensors."""
        num_tokens, num_sequences = self._num_tokens, self._num_sequences
        wide = buffer[: self._num_wide].split_with_sizes(
            [num_tokens, num_tokens * self._coordinates, self._num_rows, *self._adapters.values()]
        )
        narrow_parts = [num_tokens, num_sequences * self._width, num_sequences + 1, num_sequences]
        narrow = buffer[self._num_wide :].view(torch.int32)[: sum(narrow_parts)].split_with_sizes(narrow_parts)
        return DeviceBatch(
            token_ids=wide[0],
            positions=wide[1] if self._coordinates == 1 else wide[1].view(self._coordinates, num_tokens),
            last_rows=wide[2],
            adapter_rows=dict(zip(self._adapters, wide[3:], strict=True)),
            plan=PagedPlan(
                slots=narrow[0],
                block_table=narrow[1].view(num_sequences, self._width),
                query_starts=narrow[2],
                kv_lengths=narrow[3],
                host_query_ends=list(batch.query_ends),
                host_kv_lengths=list(batch.kv_lengths),
            ),
        )


def sampled_rows(batch: StepBatch) -> list[int]:
    """Rows of [T] whose successors are sampled, in the order of ``StepBatch.samples``."""
    return [batch.query_ends[sample.row] - 1 for sample in batch.samples]


def upload(batch: StepBatch, device: torch.device, host_buffer: HostBuffer) -> DeviceBatch:
    """In one copy, which the host does not wait for."""
    rows = sampled_rows(batch)
    packing = Packing(batch, rows)
    host = host_buffer(packing.num_words)
    packing.fill(host.numpy(), batch, rows)
    return packing.view(host.to(device, non_blocking=True), batch)
