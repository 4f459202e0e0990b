"""Products as calls of ``cpu_products.cpp`` and ``cpu_float_products.cpp``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from mindserve_engine.native.device.cpu_panels import float_panels, int4_panels, int8_panels
from mindserve_engine.native.weights.quantised import Int4Weight, Int8Weight

TYPES: Final = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""How the kernels number the types."""


class FloatPanelLinear:
    """float32 activations times weights as they are held; a row's outputs do not depend on the number of rows."""

    def __init__(self, product: Callable[..., int], weight: Tensor, bias: Tensor | None) -> None:
        self._product = product
        self._num_outputs, self._num_inputs = weight.shape
        self._panels = float_panels(weight)
        self._bias = None if bias is None else bias.to(torch.float32).contiguous()

    def __call__(self, x: Tensor) -> Tensor:
        if x.stride(1) != 1:
            x = x.contiguous()
        out = torch.empty((x.shape[0], self._num_outputs))
        self._product(
            TYPES[self._panels.dtype],
            x.data_ptr(),
            x.stride(0),
            x.shape[0],
            self._num_inputs,
            self._panels.data_ptr(),
            self._num_outputs,
            None if self._bias is None else self._bias.data_ptr(),
            out.data_ptr(),
        )
        return out


class PanelLinear:
    """float32 activations rounded to 8 bits in groups of 32 times weights of 4 or 8 bits, in whole numbers."""

    def __init__(self, product: Callable[..., None], weight: Int4Weight | Int8Weight, bias: Tensor | None) -> None:
        self.num_outputs, self.num_inputs = weight.shape
        self.bits = 4 if isinstance(weight, Int4Weight) else 8
        self.panels = int4_panels(weight) if isinstance(weight, Int4Weight) else int8_panels(weight)
        self.bias = None if bias is None else bias.to(torch.float32).contiguous()
        self._product = product

    def __call__(self, x: Tensor) -> Tensor:
        if x.stride(1) != 1:
            x = x.contiguous()
        out = torch.empty((x.shape[0], self.num_outputs))
        self._product(
            self.bits,
            x.data_ptr(),
            x.stride(0),
            x.shape[0],
            self.num_inputs,
            self.panels.data_ptr(),
            self.num_outputs,
            None if self.bias is None else self.bias.data_ptr(),
            out.data_ptr(),
        )
        return out
