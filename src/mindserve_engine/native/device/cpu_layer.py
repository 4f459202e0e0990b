"""A decoder layer as one call of ``cpu_layer.cpp``."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, Structure, byref, c_float, c_int, c_int64, c_void_p
from typing import Any, Final

import torch
from torch import Tensor

from mindserve_engine.native.device.base import DeviceBatch, LayerParts
from mindserve_engine.native.device.cpu_block_plan import BlockPlan
from mindserve_engine.native.device.cpu_products import TYPES, PanelLinear

_ADDRESS: Final = c_void_p


class _Product(Structure):
    _fields_ = (
        ("panels", _ADDRESS),
        ("bias", _ADDRESS),
        ("inputs", c_int64),
        ("outputs", c_int64),
        ("bits", c_int64),
    )


class _Layer(Structure):
    _fields_ = (
        ("input_norm", _ADDRESS),
        ("post_norm", _ADDRESS),
        ("qk_norm", _ADDRESS),
        ("qkv", _Product),
        ("output", _Product),
        ("gate_up", _Product),
        ("down", _Product),
        ("heads", c_int64),
        ("kv_heads", c_int64),
        ("dim", c_int64),
        ("eps", c_float),
        ("scale", c_float),
    )


class _Step(Structure):
    _fields_ = (
        ("rows", c_int64),
        ("cosine", _ADDRESS),
        ("sine", _ADDRESS),
        ("slots", _ADDRESS),
        ("sequences", c_int64),
        ("starts", _ADDRESS),
        ("news", _ADDRESS),
        ("lengths", _ADDRESS),
        ("tables", _ADDRESS),
        ("table_width", c_int64),
        ("blocks", c_int64),
        ("block_size", c_int64),
        ("cache_type", c_int64),
        ("threads", c_int64),
    )


ARGUMENTS: Final = (POINTER(_Layer), POINTER(_Step), _ADDRESS, c_int, _ADDRESS, _ADDRESS)
"""Of ``mindserve_layer``."""


def fits(parts: LayerParts) -> bool:
    """Whether all its products are from panels, and its attention is plain."""
    products = (parts.qkv, parts.output, parts.gate_up, parts.down)
    attention = parts.attention
    plain = attention.window is None and attention.softcap is None and attention.sinks is None
    is_float = parts.input_norm.dtype == torch.float32
    return plain and is_float and all(isinstance(product, PanelLinear) for product in products)


class CompiledLayer:
    """Implements ``Layer`` for parts that ``fits`` takes. Changes ``fed`` and ``residual`` in place."""

    def __init__(self, function: Callable[..., None], parts: LayerParts, *, num_threads: int) -> None:
        """``num_threads``: that will run steps; while a model is loaded, torch has fewer."""
        self._function = function
        self._threads = num_threads
        self._parts = parts  # it owns what the addresses point at
        self._layer = _Layer(
            input_norm=parts.input_norm.data_ptr(),
            post_norm=parts.post_norm.data_ptr(),
            qk_norm=None if parts.qk_norm is None else parts.qk_norm.data_ptr(),
            qkv=_product(parts.qkv),
            output=_product(parts.output),
            gate_up=_product(parts.gate_up),
            down=_product(parts.down),
            heads=parts.heads,
            kv_heads=parts.kv_heads,
            dim=parts.head_dim,
            eps=parts.eps,
            scale=parts.attention.scale,
        )

    def __call__(
        self, fed: Tensor | None, residual: Tensor, factors: Any, batch: DeviceBatch, cache: Tensor
    ) -> tuple[Tensor, Tensor]:
        plan: BlockPlan = batch.plan
        if plan.step is None:
            plan.step = self._step(residual.shape[0], factors, plan, cache)
        out = torch.empty_like(residual) if fed is None else fed
        self._function(
            byref(self._layer),
            byref(plan.step),
            cache.data_ptr(),
            int(fed is None),
            residual.data_ptr(),
            out.data_ptr(),
        )
        return out, residual

    def _step(self, rows: int, factors: tuple[Tensor, Tensor], plan: BlockPlan, cache: Tensor) -> ctypes.Structure:
        """What all layers of a step have in common."""
        cosine, sine = factors
        _, num_blocks, _, block_size, _ = cache.shape
        return _Step(
            rows=rows,
            cosine=cosine.data_ptr(),
            sine=sine.data_ptr(),
            slots=plan.slots.ctypes.data,
            sequences=len(plan.starts),
            starts=plan.starts.ctypes.data,
            news=plan.num_new.ctypes.data,
            lengths=plan.lengths.ctypes.data,
            tables=plan.tables.ctypes.data,
            table_width=plan.tables.shape[1],
            blocks=num_blocks,
            block_size=block_size,
            cache_type=TYPES[cache.dtype],
            threads=self._threads,
        )


def _product(linear: Any) -> _Product:
    panels: PanelLinear = linear
    return _Product(
        panels=panels.panels.data_ptr(),
        bias=None if panels.bias is None else panels.bias.data_ptr(),
        inputs=panels.num_inputs,
        outputs=panels.num_outputs,
        bits=panels.bits,
    )
