"""What the runner needs of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from mindserve_engine.native.device.base import DeviceBatch, LayerCache
from mindserve_engine.native.multimodal.encoder import TowerEncoder


@dataclass(frozen=True, slots=True)
class CacheShape:
    """Keys and values of one layer: both [tokens, kv_heads, head_dim]."""

    kv_heads: int
    head_dim: int

    def token_bytes(self, dtype: torch.dtype) -> int:
        return 2 * self.kv_heads * self.head_dim * dtype.itemsize


class Model(Protocol):
    """A causal language model over a paged cache."""

    dtype: torch.dtype
    """Of activations."""
    cache_dtype: torch.dtype
    """Of the keys and values that are kept: that of the weights, where activations are wider."""
    weights_name: str
    """How the linear weights are held."""
    cache_shapes: tuple[CacheShape, ...]
    """One per layer."""
    has_fixed_steps: bool
    """All that changes between decode steps of one size is read from the device's memory: they can be captured."""
    encoder: TowerEncoder | None
    """Of media, where the model takes them."""

    def logits(self, batch: DeviceBatch, caches: list[LayerCache]) -> Tensor:
        """Write the step's keys and values into ``caches`` and return [S, vocabulary] for ``batch.last_rows``."""
