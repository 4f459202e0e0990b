"""Quantised weights in the order in which ``cpu_products.cpp`` reads them."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from mindserve_engine.native.weights.quantised import GROUP, Int4Weight, Int8Weight

_QUAD: Final = 4
"""Inputs that the kernel multiplies at once for each of 8 outputs."""
_INT4_OUTPUTS: Final = 16
_INT8_OUTPUTS: Final = 8
_FLOAT_OUTPUTS: Final = 16
"""Outputs of a panel."""


def int4_panels(weight: Int4Weight) -> Tensor:
    """uint8 [panels, k / 32, 320], 16 outputs each: scales and minima as float16, then two outputs' codes a byte."""
    codes = _by_panel(weight.codes, _INT4_OUTPUTS)  # [P, 16, G, 8, 4]
    codes = codes.permute(0, 2, 3, 1, 4)  # [P, G, 8, 16, 4]
    half = _INT4_OUTPUTS // 2
    packed = codes[..., :half, :] | (codes[..., half:, :] << 4)
    factors = [_factors(weight.scale, _INT4_OUTPUTS), _factors(weight.minimum, _INT4_OUTPUTS)]
    return torch.cat([*factors, packed.flatten(2)], dim=-1)


def int8_panels(weight: Int8Weight) -> Tensor:
    """uint8 [panels, k / 32, 272], 8 outputs each: scales as float16, then codes."""
    codes = _by_panel(weight.codes.view(torch.uint8), _INT8_OUTPUTS).permute(0, 2, 3, 1, 4)  # [P, G, 8, 8, 4]
    return torch.cat([_factors(weight.scale, _INT8_OUTPUTS), codes.flatten(2)], dim=-1)


def float_panels(weight: Tensor) -> Tensor:
    """[panels, k, 16] in the weight's own type."""
    padded = functional.pad(weight, (0, 0, 0, -weight.shape[0] % _FLOAT_OUTPUTS))
    return padded.view(-1, _FLOAT_OUTPUTS, weight.shape[1]).transpose(1, 2).contiguous()


def fits_panels(weight: Int4Weight | Int8Weight) -> bool:
    """Whether its scales are numbers that float16 can hold."""
    factors = [weight.scale, weight.minimum] if isinstance(weight, Int4Weight) else [weight.scale]
    return all(bool(factor.abs().max() <= torch.finfo(torch.float16).max) for factor in factors)


def _by_panel(codes: Tensor, outputs: int) -> Tensor:
    """[n, k] -> [panels, outputs, groups, quads, 4], with zeros for the outputs that the last panel lacks."""
    padded = functional.pad(codes, (0, 0, 0, -codes.shape[0] % outputs))
    return padded.view(-1, outputs, codes.shape[1] // GROUP, GROUP // _QUAD, _QUAD)


def _factors(factors: Tensor, outputs: int) -> Tensor:
    """[n, G] -> uint8 [panels, G, 2 * outputs]."""
    padded = functional.pad(factors.to(torch.float16), (0, 0, 0, -factors.shape[0] % outputs))
    return padded.view(-1, outputs, factors.shape[1]).transpose(1, 2).contiguous().view(torch.uint8)
