"""Decode steps captured by batch size and replayed.

At a few rows a step is bound by launching its operators one by one; a graph launches all of them at once, but has
fixed sizes and addresses. So one is captured for each of a few batch sizes, over buffers of its own, and a batch takes
the next larger one. Its spare rows are padding: they decode the first token of sequences in blocks that nobody has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from mindserve_engine.interface import EngineError
from mindserve_engine.native.batch import StepBatch
from mindserve_engine.native.device.base import CapturedStep, Device, DeviceBatch, GraphBackend
from mindserve_engine.native.device.paged_batch import Packing

Forward = Callable[[DeviceBatch], Tensor]
"""The model's logits [S, vocabulary] of a batch."""

_TOLERANCE: Final = {torch.bfloat16: 0.02, torch.float16: 0.005, torch.float32: 1e-4}
"""Of a row's largest difference between a replay and the same operators, relative to its largest logit: both should be
equal, but may split their sums otherwise."""

log = logging.getLogger(__name__)


def batch_sizes(largest: int) -> list[int]:
    """1, 2, 4, 8, ... and ``largest`` itself: a size that has no graph would be the slowest of all."""
    sizes = [1 << power for power in range(largest.bit_length())]
    return sizes if sizes[-1] == largest else [*sizes, largest]


def num_scratch_blocks(largest: int, block_size: int) -> int:
    """Blocks of the cache that the padding rows of a batch of ``largest`` write into."""
    return -(-largest // block_size)


@dataclass(slots=True)
class _Graph:
    """One batch size."""

    packing: Packing
    buffer: Tensor
    """On the device, at the address that was captured."""
    step: CapturedStep


class DecodeGraphs:
    """The graphs of one model over one cache. Not thread-safe."""

    def __init__(
        self,
        device: Device,
        backend: GraphBackend,
        forward: Forward,
        *,
        table_width: int,
        scratch_block: int,
        num_blocks: int,
    ) -> None:
        """``table_width``: blocks of the longest sequence. ``scratch_block``: the first of those for padding rows.
        ``num_blocks``: of the whole cache."""
        self._device = device
        self._backend = backend
        self._forward = forward
        self._table_width = table_width
        self._scratch_block = scratch_block
        self._num_blocks = num_blocks
        backend.new_pool()
        self._graphs: dict[int, _Graph] = {}
        self._is_settled = True

    @property
    def sizes(self) -> list[int]:
        """Batch sizes that have a graph, ascending."""
        return list(self._graphs)

    def capture(self, sizes: Sequence[int]) -> None:
        """Ascending ``sizes``. Those that the device has no room for are run operator by operator; the log tells."""
        for size in sizes:
            batch = self._longest(size)
            try:
                self._graphs[size] = self._capture(batch, size)
            except RuntimeError as error:
                left = [one for one in sizes if one >= size]
                log.warning("no graphs for decode batches of %s: %s", left, " ".join(str(error).split()))
                return

    def _capture(self, batch: StepBatch, size: int) -> _Graph:
        packing = Packing(batch, list(range(size)), table_width=self._table_width)
        buffer = torch.empty(packing.num_words, dtype=torch.int64, device=self._device.torch_device)
        self._fill(packing, buffer, batch)
        uploaded = packing.view(buffer, batch)
        self._forward(uploaded)  # what is set up at the first run must not be captured
        self._device.synchronize()
        return _Graph(packing, buffer, self._backend.capture(lambda: self._forward(uploaded)))

    def logits(self, batch: StepBatch) -> Tensor | None:
        """[S, vocabulary], until the next call; ``None`` for a batch that no graph fits. ``settle`` once it is read."""
        size = next((size for size in self._graphs if size >= len(batch.query_ends)), None)
        if size is None or not _is_decode(batch):
            return None
        return self._replayed(batch, size)

    def _replayed(self, batch: StepBatch, size: int) -> Tensor:
        if not self._is_settled:  # what feeds this replay must not overtake the one before
            self._device.synchronize()
        graph = self._graphs[size]
        padded = self._padded(batch, size)
        self._fill(graph.packing, graph.buffer, padded)
        self._is_settled = False
        graph.step.replay(padded.kv_lengths)
        return graph.step.output[: len(batch.query_ends)]

    def settle(self) -> None:
        """What the last replay gave has come to the host."""
        self._is_settled = True

    def check(self, batch: StepBatch, size: int, dtype: torch.dtype) -> None:
        """Raise ``EngineError`` when the replay of a decode step at ``size`` gives other logits than the same step run
        operator by operator, rows of padding included: sums of products may be rounded otherwise at another number of
        rows."""
        padded = self._padded(batch, size)
        padded.samples = batch.samples
        eager = self._forward(self._device.upload(padded)).float().cpu()
        replayed = self._replayed(batch, size)
        if not _difference(replayed.float().cpu(), eager) < _TOLERANCE[dtype]:
            raise EngineError(
                f"npuGraph: a replayed decode step of {size} rows with contexts of {batch.kv_lengths} tokens gives "
                "other logits than the same step run operator by operator; set npuGraph to off"
            )
        self.settle()

    def release(self) -> None:
        """Give back what the device keeps for them."""
        for graph in self._graphs.values():
            graph.step.release()
        self._graphs.clear()

    def _fill(self, packing: Packing, buffer: Tensor, batch: StepBatch) -> None:
        host = self._device.host_buffer(packing.num_words)
        packing.fill(host.numpy(), batch, list(range(len(batch.query_ends))))
        buffer.copy_(host, non_blocking=True)

    def _longest(self, size: int) -> StepBatch:
        """Padding alone, but with a context as long as there can be: what is set aside for a captured step may depend
        on it. One, for lengths that add up to more blocks than the cache has may be refused."""
        batch, width = self._padded(StepBatch(), size), max(1, min(self._table_width, self._num_blocks - size + 1))
        batch.kv_lengths[0] = width * self._device.block_size
        batch.block_tables[0] *= width
        return batch

    def _padded(self, batch: StepBatch, size: int) -> StepBatch:
        """With rows that decode token 0 at position 0 into slots of their own in the scratch blocks."""
        missing, block_size = size - len(batch.query_ends), self._device.block_size
        scratch = range(self._scratch_block * block_size, self._scratch_block * block_size + missing)
        return StepBatch(
            token_ids=batch.token_ids + [0] * missing,
            positions=batch.positions + [0] * missing,
            slots=batch.slots + list(scratch),
            query_ends=list(range(1, size + 1)),
            kv_lengths=batch.kv_lengths + [1] * missing,
            block_tables=batch.block_tables + [[slot // block_size] for slot in scratch],
        )


def _is_decode(batch: StepBatch) -> bool:
    """One new token for each sequence, each of them sampled once, and nothing that the graphs do not know."""
    num_sequences = len(batch.query_ends)
    return (
        len(batch.token_ids) == num_sequences
        and batch.grid_positions is None
        and not (batch.overlays or batch.adapters)
        and [sample.row for sample in batch.samples] == list(range(num_sequences))
    )


def _difference(actual: Tensor, expected: Tensor) -> float:
    """Of the row that is furthest off."""
    return float(((actual - expected).abs().amax(dim=-1) / expected.abs().amax(dim=-1)).max())
