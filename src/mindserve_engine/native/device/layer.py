"""A decoder layer out of a device's operators."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from mindserve_engine.native.device.base import Device, DeviceBatch, LayerCache, LayerParts


class OperatorLayer:
    """Implements ``Layer``, one operator after another."""

    def __init__(self, device: Device, parts: LayerParts) -> None:
        self._device = device
        self._parts = parts

    def __call__(
        self, fed: Tensor | None, residual: Tensor, factors: Any, batch: DeviceBatch, cache: LayerCache
    ) -> tuple[Tensor, Tensor]:
        device, parts = self._device, self._parts
        if fed is None:
            normed = device.norm(residual, parts.input_norm, parts.eps)
        else:
            normed, residual = device.add_norm(fed, residual, parts.input_norm, parts.eps)
        mixed = self._attend(normed, factors, batch, cache)
        normed, residual = device.add_norm(mixed, residual, parts.post_norm, parts.eps)
        return parts.down(device.swiglu(parts.gate_up(normed))), residual

    def _attend(self, normed: Tensor, factors: Any, batch: DeviceBatch, cache: LayerCache) -> Tensor:
        device, parts = self._device, self._parts
        heads, turned = parts.heads, parts.heads + parts.kv_heads
        projected = parts.qkv(normed).view(-1, turned + parts.kv_heads, parts.head_dim)
        query_key, value = projected[:, :turned], projected[:, turned:]
        if parts.qk_norm is not None:
            query_key = device.norm(query_key, parts.qk_norm, parts.eps)
        query, key = device.rotate(query_key, heads, factors)
        device.write_kv(key, value, cache, batch)
        return parts.output(device.attention(query, key, value, cache, batch, parts.attention))
