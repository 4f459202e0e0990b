"""Products as calls of ``cpu_products.cpp`` and ``cpu_float_products.cpp``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from mindserve_engine.native.device.cpu_panels import float_panels, int4_panels, int8_panels
from mindserve_engine.native.weights.quantised import Int4Weight, Int8Weight

TYPES: Final = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""How the kernels number the types."""


class _Panels:
    """float32 activations times weights in panels; a row's outputs do not depend on the number of rows."""

    def __init__(
        self, product: Callable[..., Any], kind: int, panels: Tensor, shape: tuple[int, int], bias: Tensor | None
    ) -> None:
        """``kind``: what ``product`` must know of the panels."""
        self.num_outputs, self.num_inputs = shape
        self.panels = panels
        self.bias = None if bias is None else bias.to(torch.float32).contiguous()
        self._product = product
        self._kind = kind

    def __call__(self, x: Tensor) -> Tensor:
        if x.stride(1) != 1:
            x = x.contiguous()
        out = torch.empty((x.shape[0], self.num_outputs))
        self._product(
            self._kind,
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


class FloatPanelLinear(_Panels):
    """With weights as they are held."""

    def __init__(self, product: Callable[..., Any], weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(product, TYPES[weight.dtype], float_panels(weight), (weight.shape[0], weight.shape[1]), bias)


class PanelLinear(_Panels):
    """With weights of 4 or 8 bits, in whole numbers: activations are rounded to 8 bits in groups of 32."""

    def __init__(self, product: Callable[..., Any], weight: Int4Weight | Int8Weight, bias: Tensor | None) -> None:
        self.bits = 4 if isinstance(weight, Int4Weight) else 8
        panels = int4_panels(weight) if isinstance(weight, Int4Weight) else int8_panels(weight)
        super().__init__(product, self.bits, panels, weight.shape, bias)
