"""What a model takes of a device's memory beside its weights: tried out before the cache takes the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from mindserve_engine.native.batch import Runner
from mindserve_engine.native.device.base import Device, DeviceBatch, LayerCache
from mindserve_engine.native.device.graphs import DecodeGraphs, batch_sizes, num_scratch_blocks
from mindserve_engine.native.models.base import Model
from mindserve_engine.native.trial import num_widest_blocks, widest_batches
from mindserve_engine.options import EngineOptions

RunnerOver = Callable[[list[LayerCache], int], Runner]
"""A runner over a cache of so many blocks."""


def create_caches(model: Model, device: Device, num_blocks: int) -> list[LayerCache]:
    """One of each layer."""
    caches: list[LayerCache] = []
    with torch.inference_mode():
        for shape in model.cache_shapes:
            caches += device.kv_cache(
                num_layers=1,
                num_blocks=num_blocks,
                block_size=device.block_size,
                kv_heads=shape.kv_heads,
                head_dim=shape.head_dim,
                dtype=model.cache_dtype,
            )
    return caches


def token_bytes(model: Model) -> int:
    """Of a token's keys and values in all layers."""
    return sum(shape.token_bytes(model.cache_dtype) for shape in model.cache_shapes)


class CacheTrial:
    """Over small caches of its own."""

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

    def widest_steps(self) -> int:
        """As ``Device.cache_room`` wants it."""
        model, device, max_step_tokens = self._model, self._device, self._options.max_step_tokens
        num_blocks = num_widest_blocks(max_step_tokens, device.block_size)
        runner = self._runner_over(create_caches(model, device, num_blocks), num_blocks)
        for batch in widest_batches(
            max_step_tokens=max_step_tokens,
            max_batch_size=self._options.max_batch_size,
            max_positions=self._max_positions,
            block_size=device.block_size,
            vocab_size=self._vocab_size,
        ):
            runner.run(batch)
        return num_blocks * device.block_size * token_bytes(model)

    @contextmanager
    def captured(self) -> Iterator[None]:
        """As ``Device.cache_room`` wants it. The cache of the graphs counts as theirs: it is what padding rows will
        have."""
        backend = self._device.graphs
        if backend is None or not self._num_graphed:
            yield
            return
        block_size = self._device.block_size
        caches = create_caches(self._model, self._device, num_scratch_blocks(self._num_graphed, block_size))

        def forward(batch: DeviceBatch) -> torch.Tensor:
            return self._model.logits(batch, caches)

        width = -(-self._max_positions // block_size)
        graphs = DecodeGraphs(self._device, backend, forward, table_width=width, scratch_block=0)
        with torch.inference_mode():
            graphs.capture(batch_sizes(self._num_graphed))
        try:
            yield
        finally:
            graphs.release()
