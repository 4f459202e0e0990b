"""Ascend NPUs of the series A2 and A3 (910B, 910C), by the fused operators of torch_npu."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import torch
from torch import Tensor

from mindserve_engine.first_line import first_line
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
from mindserve_engine.native.device.card_memory import CardMemory
from mindserve_engine.native.device.layer import OperatorLayer
from mindserve_engine.native.device.npu_attention import BLOCK_SIZE, MAX_SEQUENCES, NpuAttention, check_shape
from mindserve_engine.native.device.npu_graph import NpuGraphs
from mindserve_engine.native.device.npu_import import load_torch_npu
from mindserve_engine.native.device.npu_operators import NpuOperators, NpuRuntime
from mindserve_engine.native.device.paged_batch import upload
from mindserve_engine.native.device.paged_tensors import LayerPair, copy_pair_blocks, wide_linear, zero_pairs
from mindserve_engine.native.device.self_test import check_operators
from mindserve_engine.native.kv_memory import CacheRoom
from mindserve_engine.native.weights.quantised import LinearWeight
from mindserve_engine.options import EngineOptions

DTYPES: Final = {torch.bfloat16, torch.float16}
"""That its attention computes in."""
FRACTION_VARIABLE: Final = "NPU_MEMORY_FRACTION"
"""MindIE's variable for the share of a card's memory that one process may use."""

_DEFAULT_FRACTION: Final = 0.8
_BLOCKING_VARIABLE: Final = "ASCEND_LAUNCH_BLOCKING"
_PAIR_ROTATION_DIMS: Final = (64, 128)
_MAX_ELEMENTS: Final = 2**31 - 1
"""Of a tensor of keys or values."""
_MAX_STEP_TOKENS: Final = 65536
"""Queries of one call of attention in the layout TND."""
_OLD_NAMES: Final = re.compile(r"310.*|910(A|B|(Pro|Premium)[AB])?")
"""310, 310B, 310P and the first 910, whose variants are A, B, ProA, ProB and PremiumA: a 910B of the series A2 has a
number behind the letter."""

log = logging.getLogger(__name__)


class NpuDevice:
    """Implements ``Device``."""

    name = "npu"
    sum_dtype = torch.float32
    block_size = BLOCK_SIZE

    def __init__(self, operators: NpuOperators, runtime: NpuRuntime, device_id: int) -> None:
        """``operators`` and ``runtime``: the modules torch_npu and torch.npu."""
        self.torch_device = torch.device("npu", device_id)
        self._operators = operators
        self._runtime = runtime
        runtime.set_device(device_id)
        self._memory = CardMemory(runtime, self.torch_device)
        self._attention = NpuAttention(operators, self.torch_device)
        self._ones: dict[tuple[int, torch.dtype], Tensor] = {}
        self.graphs: GraphBackend | None = None
        if os.environ.get(_BLOCKING_VARIABLE) == "1":
            log.warning("%s is 1: decode steps are not captured as graphs", _BLOCKING_VARIABLE)
        else:
            self.graphs = NpuGraphs(runtime)

    def loading(self) -> AbstractContextManager[None]:
        return nullcontext()

    def self_test(
        self, shape: AttentionShape, dtype: torch.dtype, spec: AttentionSpec, widths: LayerWidths | None = None
    ) -> None:
        check_shape(shape)
        check_operators(self, shape, dtype, spec, widths)

    def memory(self) -> Memory:
        return self._memory.now()

    def cache_room(
        self, widest_steps: Callable[[], int], captured: Callable[[], AbstractContextManager[int]]
    ) -> CacheRoom:
        return self._memory.cache_room(memory_fraction(), widest_steps, captured)

    def synchronize(self) -> None:
        self._runtime.synchronize(self.torch_device)

    def kv_cache(
        self, *, num_layers: int, num_blocks: int, block_size: int, kv_heads: int, head_dim: int, dtype: torch.dtype
    ) -> list[LayerPair]:
        shape = (num_blocks, block_size, kv_heads, head_dim)
        most = _MAX_ELEMENTS // (block_size * kv_heads * head_dim)
        if num_blocks > most:
            raise EngineError(f"npuMemSize: {num_blocks} blocks of keys are more than the {most} that attention reads")
        return zero_pairs(shape, num_layers, dtype, self.torch_device)

    def upload(self, batch: StepBatch) -> DeviceBatch:
        return upload(batch, self.torch_device, self.host_buffer)

    def host_buffer(self, num_words: int) -> Tensor:
        return host_buffer(num_words)

    def compute_dtype(self, held: torch.dtype, *, quantised: bool) -> torch.dtype:
        if held not in DTYPES:
            known = " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in DTYPES))
            raise EngineError(f"dtype: {str(held).removeprefix('torch.')} is not available on the npu, {known} are")
        return held

    def linear(self, weight: LinearWeight, bias: Tensor | None, dtype: torch.dtype) -> Linear:
        return wide_linear(weight, bias, dtype, self.torch_device)

    def layer(self, parts: LayerParts) -> Layer:
        return OperatorLayer(self, parts)

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        if weight.dim() == 1:
            return self._operators.npu_rms_norm(x, weight, eps)[0]
        return self._operators.npu_rms_norm(x, self._one(x.shape[-1], x.dtype), eps)[0] * weight

    def _one(self, size: int, dtype: torch.dtype) -> Tensor:
        key = (size, dtype)
        if key not in self._ones:
            self._ones[key] = torch.ones(size, dtype=dtype, device=self.torch_device)
        return self._ones[key]

    def add_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        normed, _, total = self._operators.npu_add_rms_norm(x, residual, weight, eps)
        return normed, total

    def rotary_factors(self, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        return cos[:, None].contiguous(), sin[:, None].contiguous()

    def rotate(self, query_key: Tensor, heads: int, factors: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        cos, sin = factors
        if query_key.shape[-1] not in _PAIR_ROTATION_DIMS:
            rotated = self._operators.npu_rotary_mul(query_key.contiguous()[None], cos[None], sin[None])[0]
            return rotated[:, :heads], rotated[:, heads:]
        query, key = query_key[:, :heads].contiguous(), query_key[:, heads:].contiguous()
        return self._operators.npu_apply_rotary_pos_emb(query, key, cos, sin, "TND", "half")

    def swiglu(self, gate_up: Tensor) -> Tensor:
        return self._operators.npu_swiglu(gate_up)

    def write_kv(self, key: Tensor, value: Tensor, cache: LayerPair, batch: DeviceBatch) -> None:
        self._attention.write(key, value, cache, batch.plan)

    def copy_blocks(self, caches: list[LayerPair], pairs: list[tuple[int, int]]) -> None:
        copy_pair_blocks(caches, pairs, self.torch_device, self.host_buffer)

    def attention(
        self, query: Tensor, key: Tensor, value: Tensor, cache: LayerPair, batch: DeviceBatch, spec: AttentionSpec
    ) -> Tensor:
        return self._attention.attend(query, cache, batch.plan, spec)


def host_buffer(num_words: int) -> Tensor:
    """[n] int64 of pinned memory: torch gives it again only when copies from it are done."""
    return torch.empty(num_words, dtype=torch.int64, pin_memory=True)


def memory_fraction() -> float:
    """Raises ``EngineError`` when the variable holds no fraction."""
    text = os.environ.get(FRACTION_VARIABLE, str(_DEFAULT_FRACTION))
    try:
        fraction = float(text)
    except ValueError:
        fraction = 0.0
    if not 0 < fraction <= 1:
        raise EngineError(f"{FRACTION_VARIABLE}: {text!r} is not a number above 0 and up to 1")
    return fraction


def create(options: EngineOptions) -> NpuDevice:
    """Raises ``EngineError`` with one line for what is missing, or what the options ask for in vain."""
    if options.block_size != BLOCK_SIZE:
        raise EngineError(f"cacheBlockSize: {options.block_size} is not available on the npu, only {BLOCK_SIZE}")
    if options.max_batch_size > MAX_SEQUENCES:
        raise EngineError(f"maxBatchSize: {options.max_batch_size} is above the {MAX_SEQUENCES} that the npu takes")
    if options.max_step_tokens > _MAX_STEP_TOKENS:
        raise EngineError(
            f"maxPrefillTokens: {options.max_step_tokens} is above the {_MAX_STEP_TOKENS} that the npu takes in a step"
        )
    if options.deterministic:
        raise EngineError("deterministic: is not available on the npu")
    memory_fraction()
    package: Any = load_torch_npu()
    runtime: NpuRuntime = package.npu
    device_id = options.device_ids[0] if options.device_ids else 0
    if not 0 <= device_id < runtime.device_count():
        raise EngineError(f"npuDeviceIds: {device_id} is not among the {runtime.device_count()} visible devices")
    runtime.set_device(device_id)
    model = runtime.get_device_name()
    if _OLD_NAMES.fullmatch(model.removeprefix("Ascend")):
        raise EngineError(f"device: npu: {model} is not supported; the series A2 and A3 (910B, 910C) are")
    log.info("npu %d: %s, torch_npu %s, CANN %s", device_id, model, package.__version__, cann_version(runtime))
    return NpuDevice(package, runtime, device_id)


def cann_version(runtime: NpuRuntime) -> str:
    """As torch_npu finds it; for the log and for reports."""
    try:
        version: str = runtime.utils.get_cann_version("CANN")
    except (AttributeError, RuntimeError, TypeError, OSError) as error:
        return f"unknown ({first_line(error)})"
    return version or "unknown"
