"""The small operators of a decoder layer, by torch's own, for devices without better ones."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


class TorchOperators:
    """A part of ``Device``."""

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        if weight.dim() == 1:
            return functional.rms_norm(x, weight.shape, weight, eps)
        return functional.rms_norm(x, weight.shape[-1:], None, eps) * weight

    def add_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        total = residual + x
        return self.norm(total, weight, eps), total

    def rotary_factors(self, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """The sines carry the sign of the rotation, so that a plain roll takes the place of negate-and-swap."""
        half = sin.shape[-1] // 2
        signed = torch.cat([-sin[:, :half], sin[:, half:]], dim=-1)
        return cos[:, None], signed[:, None]

    def rotary(self, x: Tensor, factors: tuple[Tensor, Tensor]) -> Tensor:
        """[T, heads, D] rotated by halves."""
        cos, signed_sin = factors
        return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), signed_sin)

    def rotate(self, query_key: Tensor, heads: int, factors: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        rotated = self.rotary(query_key, factors)
        return rotated[:, :heads], rotated[:, heads:]

    def swiglu(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return functional.silu(gate).mul_(up)
