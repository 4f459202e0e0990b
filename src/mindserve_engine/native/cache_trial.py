"""What a model takes of a device's memory beside its weights: tried out before the cache takes the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil

import torch

from mindserve_engine.native.batch import Runner
from mindserve_engine.native.device.base import Device, DeviceBatch, LayerCache
from mindserve_engine.native.device.graphs import DecodeGraphs, batch_sizes, num_scratch_blocks
from mindserve_engine.native.models.base import CacheShape, Model
from mindserve_engine.native.trial import widest_batches
from mindserve_engine.options import EngineOptions

RunnerOver = Callable[[list[LayerCache], int], Runner]
"""A runner over a cache of so many blocks."""


def create_caches(model: Model, device: Device, num_blocks: int) -> list[LayerCache]:
    """One of each layer."""
    return [cache for shape in model.cache_shapes for cache in _create(model, device, shape, num_blocks)]


def _create(model: Model, device: Device, shape: CacheShape, num_blocks: int) -> list[LayerCache]:
    with torch.inference_mode():
        return device.kv_cache(
            num_layers=1,
            num_blocks=num_blocks,
            block_size=device.block_size,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            dtype=model.cache_dtype,
        )


def token_bytes(model: Model) -> int:
    """Of a token's keys and values in all layers."""
    return sum(shape.token_bytes(model.cache_dtype) for shape in model.cache_shapes)


def create_stand_ins(model: Model, device: Device, num_blocks: int) -> tuple[list[LayerCache], int]:
    """Caches for steps whose results nobody reads, and their bytes: layers of one shape have one together, so that the
    longest context fits before it is known how many layers of it do."""
    by_shape: dict[CacheShape, list[LayerCache]] = {}
    for shape in model.cache_shapes:
        if shape not in by_shape:
            by_shape[shape] = _create(model, device, shape, num_blocks)
    num_bytes = num_blocks * device.block_size * sum(shape.token_bytes(model.cache_dtype) for shape in by_shape)
    return [cache for shape in model.cache_shapes for cache in by_shape[shape]], num_bytes


class CacheTrial:
    """Over caches of its own."""

    def __init__(
        self,
        model: Model,
        device: Device,
        options: EngineOptions,
        runner_over: RunnerOver,
        *,
        max_positions: int,
        vocab_size: int,
        num_graphed: int,
    ) -> None:
        """``num_graphed``: rows of the largest decode step that is captured; 0: none is."""
        self._model = model
        self._device = device
        self._options = options
        self._runner_over = runner_over
        self._max_positions = max_positions
        self._vocab_size = vocab_size
        self._num_graphed = num_graphed

    def _longest(self) -> int:
        """Tokens of the longest context that can be served: what the memory does not hold is cut off later."""
        affordable = self._device.memory().free // token_bytes(self._model)
        return max(1, min(self._max_positions, affordable))

    def widest_steps(self) -> int:
        """As ``Device.cache_room`` wants it."""
        batches = widest_batches(
            max_step_tokens=self._options.max_step_tokens,
            max_batch_size=self._options.max_batch_size,
            max_positions=self._longest(),
            block_size=self._device.block_size,
            vocab_size=self._vocab_size,
        )
        num_blocks = 1 + max(blocks[-1] for batch in batches for blocks in batch.block_tables)
        caches, num_bytes = create_stand_ins(self._model, self._device, num_blocks)
        runner = self._runner_over(caches, num_blocks)
        for batch in batches:
            runner.run(batch)
        return num_bytes

    @contextmanager
    def captured(self) -> Iterator[int]:
        """As ``Device.cache_room`` wants it. The blocks that padding rows will have count as the graphs'."""
        backend = self._device.graphs
        if backend is None or not self._num_graphed:
            yield 0
            return
        block_size = self._device.block_size
        width = ceil(self._longest() / block_size)
        num_blocks = width + self._num_graphed - 1
        caches, num_bytes = create_stand_ins(self._model, self._device, num_blocks)
        num_scratch = num_scratch_blocks(self._num_graphed, block_size)

        def forward(batch: DeviceBatch) -> torch.Tensor:
            return self._model.logits(batch, caches)

        graphs = DecodeGraphs(self._device, backend, forward, table_width=width, scratch_block=0, num_blocks=num_blocks)
        with torch.inference_mode():
            graphs.capture(batch_sizes(self._num_graphed))
        try:
            yield num_bytes - num_scratch * block_size * token_bytes(self._model)
        finally:
            graphs.release()
