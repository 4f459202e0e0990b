"""Linear weights that stay quantised in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

INT4_GROUP: Final = 32
"""Inputs that share one scale and one minimum."""


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
        groups = self.codes.view(self.codes.shape[0], -1, INT4_GROUP).to(torch.float32)
        return torch.addcmul(self.minimum[..., None], groups, self.scale[..., None]).view(self.shape)

    def take_rows(self, rows: Tensor) -> Int4Weight:
        return Int4Weight(self.codes[rows], self.scale[rows], self.minimum[rows])


@dataclass(frozen=True, slots=True)
class Int8Weight:
    """8 bits a weight with one scale per row, beside the wide weight it was made from."""

    codes: Tensor
    """[n, k] int8."""
    scale: Tensor
    """[n] float32."""
    wide: Tensor
    """[n, k] what the file says, for batches where 8 bits do not pay."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape[0], self.codes.shape[1]

    @classmethod
    def quantise(cls, weight: Tensor) -> Int8Weight:
        """Symmetric, per row, to the nearest."""
        wide = weight.to(torch.float32)
        scale = (wide.abs().amax(dim=1) / 127).clamp_min(torch.finfo(torch.float32).tiny)
        codes = (wide / scale[:, None]).round_().clamp_(-127, 127).to(torch.int8)
        return cls(codes, scale, weight)


LinearWeight = Tensor | Int4Weight | Int8Weight


def widen(weight: LinearWeight) -> Tensor:
    """The weight as a plain tensor [n, k]."""
    if isinstance(weight, Int4Weight):
        return weight.dequantise()
    return weight.wide if isinstance(weight, Int8Weight) else weight


def rows_of(weight: LinearWeight, rows: Tensor) -> Tensor:
    """[R, k] float32: the named rows as exactly as the weight is known."""
    if isinstance(weight, Int4Weight):
        return weight.take_rows(rows).dequantise()
    return (weight.wide if isinstance(weight, Int8Weight) else weight)[rows].float()


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
    wide = torch.cat([widen(weight) for weight in weights])
    return wide if all(isinstance(weight, Tensor) for weight in weights) else Int8Weight.quantise(wide)
