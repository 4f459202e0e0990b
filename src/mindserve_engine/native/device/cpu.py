"""The CPU with torch's own operators: no compiler needed. ``cpu_compiled`` is the faster one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import numpy as np
import psutil
import torch
from torch import Tensor

from mindserve_engine.interface import EngineError
from mindserve_engine.native.batch import StepBatch
from mindserve_engine.native.device.base import (
    AttentionShape,
    AttentionSpec,
    DeviceBatch,
    GraphBackend,
    Layer,
    LayerParts,
    LayerWidths,
    Linear,
    Memory,
)
from mindserve_engine.native.device.cpu_attention import attend
from mindserve_engine.native.device.cpu_linear import (
    INT4_ROWS,
    INT4_ROWS_FLOAT16,
    BatchSizeLinear,
    HalfPacker,
    Int4Linear,
    PlainLinear,
    can_be_half,
    has_arithmetic,
)
from mindserve_engine.native.device.cpu_plan import CpuPlan, plan_step
from mindserve_engine.native.device.layer import OperatorLayer
from mindserve_engine.native.device.torch_operators import TorchOperators
from mindserve_engine.native.kv_memory import CacheRoom
from mindserve_engine.native.lora.rows import rows_by_adapter
from mindserve_engine.native.weights.quantised import Int4Weight, Int8Weight, LinearWeight

_CACHE_SHARE: Final = 0.3
"""What the cache takes of the memory that is free once the weights are loaded, unless the operator says otherwise."""


class CpuDevice(TorchOperators):
    """Implements ``Device``."""

    name = "cpu"
    sum_dtype = torch.float64
    graphs: GraphBackend | None = None

    def __init__(self, *, num_threads: int | None, block_size: int) -> None:
        if not 16 <= block_size <= 128 or block_size % 16:
            raise EngineError(f"cacheBlockSize: {block_size} is not a multiple of 16 between 16 and 128")
        if num_threads is not None:
            torch.set_num_threads(num_threads)
        self.torch_device = torch.device("cpu")
        self.block_size = block_size
        self._packer = HalfPacker()
        # Wide copies of weights are a luxury: they get a quarter of what is free now, the KV cache the rest.
        self._wide_budget = self.memory().free // 4

    @contextmanager
    def loading(self) -> Iterator[None]:
        """One thread less: the server process reads its tokenizer meanwhile. Threads that find no core of their own
        wait for each other at the end of every operator, which makes loading three to ten times slower."""
        num_threads = torch.get_num_threads()
        torch.set_num_threads(max(1, num_threads - 1))
        try:
            yield
            self._packer.finish()
        finally:
            torch.set_num_threads(num_threads)

    def memory(self) -> Memory:
        machine = psutil.virtual_memory()
        return Memory(free=machine.available, total=machine.total)

    def cache_room(
        self, widest_steps: Callable[[], int], captured: Callable[[], AbstractContextManager[int]]
    ) -> CacheRoom:
        """The rest is for activations, other programs, and the file cache."""
        return CacheRoom(self.memory().free, share=_CACHE_SHARE, is_shared=True)

    def self_test(
        self, shape: AttentionShape, dtype: torch.dtype, spec: AttentionSpec, widths: LayerWidths | None = None
    ) -> None:
        """There is nothing that it could not compute."""

    def synchronize(self) -> None:
        """Its operators return when they are done."""

    def kv_cache(
        self, *, num_layers: int, num_blocks: int, block_size: int, kv_heads: int, head_dim: int, dtype: torch.dtype
    ) -> list[Tensor]:
        """[2, blocks, KV, block size, D] per layer. The system gives numpy's zeros page by page as they are written;
        torch's own would touch gigabytes at start."""
        shape = (2, num_blocks, kv_heads, block_size, head_dim)
        num_bytes = math.prod(shape) * dtype.itemsize
        layers = (torch.from_numpy(np.zeros(num_bytes, dtype=np.uint8)) for _ in range(num_layers))
        return [layer.view(dtype).view(shape) for layer in layers]

    def upload(self, batch: StepBatch) -> DeviceBatch:
        ends = batch.query_ends
        positions = batch.positions if batch.grid_positions is None else batch.grid_positions
        return DeviceBatch(
            token_ids=torch.tensor(batch.token_ids, dtype=torch.int64),
            positions=torch.as_tensor(positions, dtype=torch.int64),
            last_rows=torch.tensor([ends[sample.row] - 1 for sample in batch.samples], dtype=torch.int64),
            adapter_rows={name: torch.tensor(rows) for name, rows in rows_by_adapter(batch).items()},
            plan=self._plan(batch),
        )

    def _plan(self, batch: StepBatch) -> Any:
        return plan_step(batch, self.block_size)

    def host_buffer(self, num_words: int) -> Tensor:
        return torch.empty(num_words, dtype=torch.int64)

    def compute_dtype(self, held: torch.dtype, *, quantised: bool) -> torch.dtype:
        return held if has_arithmetic(held) else torch.float32

    def linear(self, weight: LinearWeight, bias: Tensor | None, dtype: torch.dtype) -> Linear:
        if isinstance(weight, Int4Weight):
            return self._int4(weight, bias, dtype)
        if isinstance(weight, Int8Weight):
            return self._wide(weight.dequantise().to(dtype), bias)
        return PlainLinear(weight, bias) if weight.dtype == dtype else self._wide(weight.to(dtype), bias)

    def _int4(self, weight: Int4Weight, bias: Tensor | None, dtype: torch.dtype) -> Linear:
        """Few rows with the weight as it is held, many with a copy that suits the type of the activations."""
        narrow = Int4Linear(weight, bias)
        wide = weight.dequantise().to(dtype)
        is_half = dtype == torch.float32 and can_be_half(wide)
        num_bytes = wide.numel() * (torch.float16 if is_half else dtype).itemsize
        if num_bytes > self._wide_budget:
            return narrow
        self._wide_budget -= num_bytes
        max_rows = INT4_ROWS_FLOAT16 if is_half else INT4_ROWS[dtype]
        return BatchSizeLinear(narrow, self._wide(wide, bias), max_rows)

    def _wide(self, weight: Tensor, bias: Tensor | None) -> Linear:
        """With a weight that was held in less than the type of the activations."""
        is_half = weight.dtype == torch.float32 and can_be_half(weight)
        return self._packer.pack(weight, bias) if is_half else PlainLinear(weight, bias)

    def layer(self, parts: LayerParts) -> Layer:
        return OperatorLayer(self, parts)

    def write_kv(self, key: Tensor, value: Tensor, cache: Tensor, batch: DeviceBatch) -> None:
        plan: CpuPlan = batch.plan
        _, num_blocks, kv_heads, _, head_dim = cache.shape
        if len(plan.stale_tiles):
            # A product with a stale infinity or NaN is not zero, even where its weight is.
            stale = plan.stale_index(num_blocks, kv_heads)
            cache.view(-1, plan.tile * head_dim).index_fill_(0, stale, 0)
        rows = plan.write_index(num_blocks, kv_heads)
        both = torch.cat([key, value]).view(-1, head_dim).to(cache.dtype)
        cache.view(-1, head_dim).index_copy_(0, rows, both)

    def copy_blocks(self, caches: list[Tensor], pairs: list[tuple[int, int]]) -> None:
        sources, destinations = torch.tensor(pairs, dtype=torch.int64).unbind(1)
        for cache in caches:
            cache.index_copy_(1, destinations, cache.index_select(1, sources))

    def attention(
        self, query: Tensor, key: Tensor, value: Tensor, cache: Tensor, batch: DeviceBatch, spec: AttentionSpec
    ) -> Tensor:
        return attend(query, key, value, cache, batch.plan, spec).reshape(query.shape[0], -1)
