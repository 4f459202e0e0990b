"""Linear weights that stay quantised in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

GROUP: Final = 32
"""Inputs that share one scale (and one minimum)."""
_MOST_INT8: Final = 127


@dataclass(frozen=True, slots=True)
class Int4Weight:
    """4 bits a weight: ``value = code * scale + minimum`` with one scale and minimum per 32 inputs of a row."""

    codes: Tensor
    """[n, k] uint8, 0..15."""
    scale: Tensor
    """[n, k / 32] float32."""
    minimum: Tensor
    """[n, k / 32] float32."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], self.codes.shape[1]

    def dequantise(self) -> Tensor:
        """[n, k] float32, exact."""
        groups = self.codes.view(self.codes.shape[0], -1, GROUP).to(torch.float32)
        return torch.addcmul(self.minimum[..., None], groups, self.scale[..., None]).view(self.shape)

    def take_rows(self, rows: Tensor) -> Int4Weight:
        return Int4Weight(self.codes[rows], self.scale[rows], self.minimum[rows])


@dataclass(frozen=True, slots=True)
class Int8Weight:
    """8 bits a weight: ``value = code * scale`` with one scale per 32 inputs of a row."""

    codes: Tensor
    """[n, k] int8, -127..127."""
    scale: Tensor
    """[n, k / 32] float32, numbers that float16 can hold."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], self.codes.shape[1]

    def dequantise(self) -> Tensor:
        """[n, k] float32, exact."""
        groups = self.codes.view(self.codes.shape[0], -1, GROUP).to(torch.float32)
        return (groups * self.scale[..., None]).view(self.shape)

    def take_rows(self, rows: Tensor) -> Int8Weight:
        return Int8Weight(self.codes[rows], self.scale[rows])

    @classmethod
    def quantise(cls, weight: Tensor) -> Int8Weight:
        """Symmetric, to the nearest. Weights that were 8 bits in groups of 32 with a float16 scale come out as they
        were if a code of each group was 127 or -127, as it is in GGML's."""
        groups = weight.to(torch.float32).view(weight.shape[0], -1, GROUP)
        scale = (groups.abs().amax(dim=-1) / _MOST_INT8).to(torch.float16).to(torch.float32)
        divisor = torch.where(scale == 0, 1, scale)[..., None]
        codes = (groups / divisor).round_().clamp_(-_MOST_INT8, _MOST_INT8).to(torch.int8)
        return cls(codes.view(weight.shape), scale)


LinearWeight = Tensor | Int4Weight | Int8Weight


def widen(weight: LinearWeight) -> Tensor:
    """The weight as a plain tensor [n, k]."""
    return weight if isinstance(weight, Tensor) else weight.dequantise()


def move(weight: LinearWeight, device: torch.device) -> LinearWeight:
    """The weight on ``device``; itself where it is there."""
    if isinstance(weight, Int4Weight):
        return Int4Weight(weight.codes.to(device), weight.scale.to(device), weight.minimum.to(device))
    if isinstance(weight, Int8Weight):
        return Int8Weight(weight.codes.to(device), weight.scale.to(device))
    return weight.to(device)


def rows_of(weight: LinearWeight, rows: Tensor) -> Tensor:
    """[R, k] float32: the named rows as exactly as the weight is known."""
    return weight[rows].float() if isinstance(weight, Tensor) else weight.take_rows(rows).dequantise()


def concatenate(weights: list[LinearWeight]) -> LinearWeight:
    """One weight whose rows are those of ``weights`` in order, so that projections of one input become one product.

    Rows held in different ways (a mixed GGUF file) end up with 8 bits."""
    if all(isinstance(weight, Int4Weight) for weight in weights):
        int4 = [weight for weight in weights if isinstance(weight, Int4Weight)]
        return Int4Weight(
            torch.cat([weight.codes for weight in int4]),
            torch.cat([weight.scale for weight in int4]),
            torch.cat([weight.minimum for weight in int4]),
        )
    if all(isinstance(weight, Tensor) for weight in weights):
        return torch.cat([widen(weight) for weight in weights])
    int8 = [weight if isinstance(weight, Int8Weight) else Int8Weight.quantise(widen(weight)) for weight in weights]
    return Int8Weight(torch.cat([weight.codes for weight in int8]), torch.cat([weight.scale for weight in int8]))
