"""A decoder layer on an NPU: queries and keys are rotated by one operator."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from mindserve_engine.native.device.base import Device, DeviceBatch, LayerCache, LayerParts
from mindserve_engine.native.device.layer import OperatorLayer


class PairRotation(Device, Protocol):
    """A device that rotates queries and keys together."""

    def rotate_both(self, query: Tensor, key: Tensor, factors: Any) -> tuple[Tensor, Tensor]:
        """[T, H, D] and [T, KV, D]; they must not be used any more."""


class NpuLayer(OperatorLayer):
    """Implements ``Layer``."""

    def __init__(self, device: PairRotation, parts: LayerParts) -> None:
        super().__init__(device, parts)
        self._rotation = device

    def _attend(self, normed: Tensor, factors: Any, batch: DeviceBatch, cache: LayerCache) -> Tensor:
        device, parts = self._rotation, self._parts
        heads, turned = parts.heads, parts.heads + parts.kv_heads
        projected = parts.qkv(normed).view(-1, turned + parts.kv_heads, parts.head_dim)
        query_key, value = projected[:, :turned], projected[:, turned:]
        if parts.qk_norm is not None:
            query_key = device.norm(query_key, parts.qk_norm, parts.eps)
        query, key = device.rotate_both(query_key[:, :heads], query_key[:, heads:], factors)
        device.write_kv(key, value, cache, batch)
        return parts.output(device.attention(query, key, value, cache, batch, parts.attention))
