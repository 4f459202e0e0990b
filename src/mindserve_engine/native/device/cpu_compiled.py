"""The CPU with kernels of our own: products with quantised weights (``cpu_products.cpp``) and what lies between
products (``cpu_elementwise.cpp``, ``cpu_attention.cpp``).

torch's operators give the same numbers to a rounding, but in many small steps: at one row, most of a decode step was
their overhead, and decode attention had to copy a sequence's keys and values together before it could read them."""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int, c_int64, c_void_p
from typing import Final

import torch
from torch import Tensor

from mindserve_engine.native.batch import StepBatch
from mindserve_engine.native.device.base import AttentionSpec, DeviceBatch, Layer, LayerParts, Linear
from mindserve_engine.native.device.cpu import CpuDevice
from mindserve_engine.native.device.cpu_block_plan import BlockPlan, plan_blocks
from mindserve_engine.native.device.cpu_layer import ARGUMENTS, CompiledLayer, fits
from mindserve_engine.native.device.cpu_panels import fits_panels
from mindserve_engine.native.device.cpu_products import TYPES, FloatPanelLinear, PanelLinear
from mindserve_engine.native.weights.quantised import LinearWeight, widen

_SIGNATURES: Final = {
    "mindserve_norm": "ipnpppnpnnnf",
    "mindserve_rotary": "ipnpppnnn",
    "mindserve_swiglu": "ippnn",
    "mindserve_write_kv": "iipnpnppnnnnn",
    "mindserve_attention": "iipnpnppppnnnnnnfnfpnp",
    "mindserve_has_products": "",
    "mindserve_product": "ipnnnpnpp",
    "mindserve_float_product": "ipnnnpnpp",
}
_LETTERS: Final = {"i": c_int, "n": c_int64, "p": c_void_p, "f": c_float}


class CompiledCpuDevice(CpuDevice):
    """Implements ``Device`` over a library that ``cpu_build`` made."""

    def __init__(
        self, library: ctypes.CDLL, *, num_threads: int | None, block_size: int, deterministic: bool = False
    ) -> None:
        """``deterministic``: no result of a row depends on what shares its step, to the bit."""
        super().__init__(num_threads=num_threads, block_size=block_size)
        self._deterministic = deterministic
        for name, letters in _SIGNATURES.items():
            getattr(library, name).argtypes = [_LETTERS[letter] for letter in letters]
        self._norm = library.mindserve_norm
        self._rotary = library.mindserve_rotary
        self._swiglu = library.mindserve_swiglu
        self._write_kv = library.mindserve_write_kv
        self._attention = library.mindserve_attention
        self._num_threads = torch.get_num_threads()
        self._layer = library.mindserve_layer
        self._layer.argtypes, self._layer.restype = ARGUMENTS, None
        self._product = library.mindserve_product
        self._float_product = library.mindserve_float_product
        self.has_products = bool(library.mindserve_has_products())

    def compute_dtype(self, held: torch.dtype, *, quantised: bool) -> torch.dtype:
        """Products of quantised weights take activations as whole numbers and give floats: nothing is gained by
        rounding them in between."""
        if self._deterministic or (quantised and self.has_products):
            return torch.float32
        return super().compute_dtype(held, quantised=quantised)

    def linear(self, weight: LinearWeight, bias: Tensor | None, dtype: torch.dtype) -> Linear:
        fits_products = dtype == torch.float32 and self.has_products
        if isinstance(weight, Tensor) or not fits_products or not fits_panels(weight):
            if self._deterministic:
                return FloatPanelLinear(self._float_product, widen(weight), bias)
            return super().linear(weight, bias, dtype)
        return PanelLinear(self._product, weight, bias)

    def layer(self, parts: LayerParts) -> Layer:
        if not fits(parts):
            return super().layer(parts)
        return CompiledLayer(self._layer, parts, num_threads=self._num_threads)

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        x = _rows(x)
        out = torch.empty(x.shape, dtype=x.dtype)
        self._normed(x, None, None, weight, eps, out)
        return out

    def add_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        x, residual = _rows(x), residual.contiguous()
        out, total = torch.empty_like(residual), torch.empty_like(residual)
        self._normed(x, residual, total, weight, eps, out)
        return out, total

    def _normed(
        self, x: Tensor, residual: Tensor | None, total: Tensor | None, weight: Tensor, eps: float, out: Tensor
    ) -> None:
        dim = x.shape[-1]
        heads = x.shape[1] if x.dim() == 3 else 1
        weight = weight.to(x.dtype).contiguous()
        self._norm(
            TYPES[x.dtype],
            x.data_ptr(),
            x.stride(0),
            None if residual is None else residual.data_ptr(),
            None if total is None else total.data_ptr(),
            weight.data_ptr(),
            weight.numel() // dim,
            out.data_ptr(),
            x.shape[0],
            heads,
            dim,
            eps,
        )

    def rotary_factors(self, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        cosine, signed_sine = super().rotary_factors(cos, sin)
        return cosine.contiguous(), signed_sine.contiguous()

    def rotary(self, x: Tensor, factors: tuple[Tensor, Tensor]) -> Tensor:
        x = _rows(x)
        cosine, signed_sine = factors
        out = torch.empty(x.shape, dtype=x.dtype)
        self._rotary(
            TYPES[x.dtype],
            x.data_ptr(),
            x.stride(0),
            cosine.data_ptr(),
            signed_sine.data_ptr(),
            out.data_ptr(),
            *x.shape,
        )
        return out

    def swiglu(self, gate_up: Tensor) -> Tensor:
        gate_up = gate_up.contiguous()
        rows, both = gate_up.shape
        out = gate_up.new_empty((rows, both // 2))
        self._swiglu(TYPES[out.dtype], gate_up.data_ptr(), out.data_ptr(), rows, both // 2)
        return out

    def write_kv(self, key: Tensor, value: Tensor, cache: Tensor, batch: DeviceBatch) -> None:
        plan: BlockPlan = batch.plan
        _, num_blocks, kv_heads, block_size, head_dim = cache.shape
        key, value = _rows(key), _rows(value)
        self._write_kv(
            TYPES[key.dtype],
            TYPES[cache.dtype],
            key.data_ptr(),
            key.stride(0),
            value.data_ptr(),
            value.stride(0),
            cache.data_ptr(),
            plan.slots.ctypes.data,
            len(plan.slots),
            num_blocks,
            kv_heads,
            block_size,
            head_dim,
        )

    def attention(
        self, query: Tensor, key: Tensor, value: Tensor, cache: Tensor, batch: DeviceBatch, spec: AttentionSpec
    ) -> Tensor:
        plan: BlockPlan = batch.plan
        _, num_blocks, kv_heads, block_size, head_dim = cache.shape
        query = _rows(query)
        sinks = None if spec.sinks is None else spec.sinks.to(torch.float32).contiguous()
        out = torch.empty(query.shape, dtype=query.dtype)
        self._attention(
            TYPES[query.dtype],
            TYPES[cache.dtype],
            query.data_ptr(),
            query.stride(0),
            cache.data_ptr(),
            len(plan.starts),
            plan.starts.ctypes.data,
            plan.num_new.ctypes.data,
            plan.lengths.ctypes.data,
            plan.tables.ctypes.data,
            plan.tables.shape[1],
            num_blocks,
            kv_heads,
            query.shape[1] // kv_heads,
            block_size,
            head_dim,
            spec.scale,
            spec.window or 0,
            spec.softcap or 0.0,
            None if sinks is None else sinks.data_ptr(),
            self._num_threads,
            out.data_ptr(),
        )
        return out.view(query.shape[0], -1)

    def _plan(self, batch: StepBatch) -> BlockPlan:
        return plan_blocks(batch)


def _rows(x: Tensor) -> Tensor:
    """``x`` itself where each of its rows is one piece of memory, as in slices of a fused projection."""
    if x.is_contiguous() or (x.dim() == 3 and x.stride()[1:] == (x.shape[2], 1)):
        return x
    return x.contiguous()
