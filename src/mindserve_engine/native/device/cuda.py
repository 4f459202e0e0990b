"""GPUs by CUDA: torch's operators, with attention by flash-attn where it is installed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from typing import Final

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
from mindserve_engine.native.device.card_memory import CardMemory, MemoryFigures
from mindserve_engine.native.device.cuda_attention import (
    FLASH_BLOCK_SIZE,
    FlashAttention,
    GatheredAttention,
    try_out,
)
from mindserve_engine.native.device.cuda_graph import CudaGraphs
from mindserve_engine.native.device.layer import OperatorLayer
from mindserve_engine.native.device.paged_batch import upload
from mindserve_engine.native.device.paged_tensors import LayerPair, copy_pair_blocks, wide_linear, zero_pairs
from mindserve_engine.native.device.self_test import check_operators
from mindserve_engine.native.device.torch_operators import TorchOperators
from mindserve_engine.native.kv_memory import CacheRoom
from mindserve_engine.native.weights.quantised import LinearWeight
from mindserve_engine.options import EngineOptions

_MEMORY_FRACTION: Final = 0.9
"""Of a GPU's memory that this process may use; the rest is for what CUDA takes and torch does not see."""
_ASKED_BLOCK_SIZE: Final = 128
"""The largest that ``cacheBlockSize`` can ask for, and its default: it stands for larger blocks too."""
_FLASH_CAPABILITY: Final = (8, 0)
_BFLOAT16_CAPABILITY: Final = (8, 0)
_OLD_DTYPES: Final = ("float16", "float32")
"""Of all GPUs. Every other name, int4 too, can end in bfloat16."""

log = logging.getLogger(__name__)


class CudaDevice(TorchOperators):
    """Implements ``Device``. All but memory figures and graphs runs on any device of torch."""

    name = "cuda"
    sum_dtype = torch.float64

    def __init__(
        self,
        torch_device: torch.device,
        *,
        block_size: int,
        flash: FlashAttention | None,
        graphs: GraphBackend | None,
        figures: MemoryFigures,
    ) -> None:
        """``figures``: the module torch.cuda. ``graphs``: where flash-attn computes a model's heads."""
        self.torch_device = torch_device
        self.block_size = block_size
        self.graphs: GraphBackend | None = None
        self._capturing = graphs
        self._flash = flash
        self._gathered = GatheredAttention()
        self._is_slowness_told = False
        self._figures = figures
        self._memory = CardMemory(figures, torch_device)

    def loading(self) -> AbstractContextManager[None]:
        return nullcontext()

    def self_test(
        self, shape: AttentionShape, dtype: torch.dtype, spec: AttentionSpec, widths: LayerWidths | None = None
    ) -> None:
        if self._flash is not None and self._flash.fits(shape.head_dim, dtype) and spec.sinks is None:
            self.graphs = self._capturing
        elif not self._is_slowness_told:
            self._is_slowness_told = True
            log.warning("attention by torch's own operators over gathered blocks: decode steps are not captured")
        check_operators(self, shape, dtype, spec, widths)

    def memory(self) -> Memory:
        return self._memory.now()

    def cache_room(
        self, widest_steps: Callable[[], int], captured: Callable[[], AbstractContextManager[int]]
    ) -> CacheRoom:
        return self._memory.cache_room(_MEMORY_FRACTION, widest_steps, captured)

    def synchronize(self) -> None:
        self._figures.synchronize(self.torch_device)

    def kv_cache(
        self, *, num_layers: int, num_blocks: int, block_size: int, kv_heads: int, head_dim: int, dtype: torch.dtype
    ) -> list[LayerPair]:
        shape = (num_blocks, block_size, kv_heads, head_dim)
        return zero_pairs(shape, num_layers, dtype, self.torch_device)

    def upload(self, batch: StepBatch) -> DeviceBatch:
        return upload(batch, self.torch_device, self.host_buffer)

    def host_buffer(self, num_words: int) -> Tensor:
        """[n] int64 of pinned memory: torch gives it again only when copies from it are done."""
        return torch.empty(num_words, dtype=torch.int64, pin_memory=self.torch_device.type == "cuda")

    def compute_dtype(self, held: torch.dtype, *, quantised: bool) -> torch.dtype:
        return held

    def linear(self, weight: LinearWeight, bias: Tensor | None, dtype: torch.dtype) -> Linear:
        return wide_linear(weight, bias, dtype, self.torch_device)

    def layer(self, parts: LayerParts) -> Layer:
        return OperatorLayer(self, parts)

    def write_kv(self, key: Tensor, value: Tensor, cache: LayerPair, batch: DeviceBatch) -> None:
        slots = batch.plan.slots.long()
        for half, written in zip(cache, (key, value), strict=True):
            half.flatten(0, 1).index_copy_(0, slots, written.to(half.dtype))

    def copy_blocks(self, caches: list[LayerPair], pairs: list[tuple[int, int]]) -> None:
        copy_pair_blocks(caches, pairs, self.torch_device, self.host_buffer)

    def attention(
        self, query: Tensor, key: Tensor, value: Tensor, cache: LayerPair, batch: DeviceBatch, spec: AttentionSpec
    ) -> Tensor:
        has_kernel = self._flash is not None and self._flash.fits(query.shape[-1], query.dtype)
        way = self._flash if self._flash is not None and has_kernel else self._gathered
        return way.attend(query, cache, batch.plan, spec).flatten(1)


def create(options: EngineOptions) -> CudaDevice:
    """Raises ``EngineError`` with one line for what is missing, or what the options ask for in vain."""
    device = _device(options)
    if options.deterministic:
        raise EngineError("deterministic: is not available on cuda")
    capability = torch.cuda.get_device_capability(device)
    if options.dtype not in _OLD_DTYPES and capability < _BFLOAT16_CAPABILITY:
        raise EngineError(
            f"dtype: {options.dtype.replace('auto', 'bfloat16')} is not available on "
            f"{torch.cuda.get_device_name(device)}, {' and '.join(_OLD_DTYPES)} are"
        )
    # float32 means float32: products in TF32 keep ten bits
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    figures: MemoryFigures = torch.cuda
    dtype = torch.float16 if options.dtype == "float16" else torch.bfloat16
    is_asked = options.dtype != "float32" and capability >= _FLASH_CAPABILITY
    flash = _flash_attention(device, dtype) if is_asked else None
    log.info("cuda %d: %s, torch %s", device.index, torch.cuda.get_device_name(device), torch.__version__)
    return CudaDevice(
        device,
        block_size=block_size_of(options.block_size, has_flash=flash is not None),
        flash=flash,
        graphs=CudaGraphs(),
        figures=figures,
    )


def _device(options: EngineOptions) -> torch.device:
    if torch.version.cuda is None:
        raise EngineError(
            f"device: cuda: torch {torch.__version__} is a build without CUDA; install the one of PyPI's index"
        )
    if not torch.cuda.is_available():
        raise EngineError("device: cuda: no GPU is visible, or its driver is too old for this torch")
    number = options.device_ids[0] if options.device_ids else 0
    if not 0 <= number < torch.cuda.device_count():
        raise EngineError(f"npuDeviceIds: {number} is not among the {torch.cuda.device_count()} visible devices")
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


def block_size_of(asked: int, *, has_flash: bool) -> int:
    """Tokens per block; ``asked``: cacheBlockSize. Raises ``EngineError`` when it cannot be had."""
    if not has_flash:
        if not 16 <= asked <= _ASKED_BLOCK_SIZE or asked % 16:
            raise EngineError(f"cacheBlockSize: {asked} is not a multiple of 16 between 16 and {_ASKED_BLOCK_SIZE}")
        return asked
    if asked != _ASKED_BLOCK_SIZE:
        raise EngineError(
            f"cacheBlockSize: {asked} is not available on cuda with flash-attn, only {_ASKED_BLOCK_SIZE}, which stands "
            f"for its blocks of {FLASH_BLOCK_SIZE}"
        )
    return FLASH_BLOCK_SIZE


def _flash_attention(device: torch.device, dtype: torch.dtype) -> FlashAttention | None:
    """flash-attn, if it is there, can be loaded and runs: it is built for one version of torch and CUDA, and for some
    GPUs."""
    if find_spec("flash_attn") is None:
        log.warning("flash-attn is not installed: attention runs by torch's own operators, which is slower")
        return None
    try:
        flash = FlashAttention(import_module("flash_attn"))
    except (ImportError, OSError) as error:
        log.warning("flash-attn cannot be loaded (%s): attention runs by torch's own operators", first_line(error))
        return None
    try:
        try_out(flash, device, dtype)
    except (RuntimeError, TypeError, AttributeError, NotImplementedError) as error:
        log.warning(
            "flash-attn does not run on this GPU (%s): attention runs by torch's own operators", first_line(error)
        )
        return None
    return flash
