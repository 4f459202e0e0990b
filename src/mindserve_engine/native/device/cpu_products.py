"""Products with quantised weights as calls of ``cpu_products.cpp``."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mindserve_engine.native.device.cpu_panels import int4_panels, int8_panels
from mindserve_engine.native.weights.quantised import Int4Weight, Int8Weight


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
