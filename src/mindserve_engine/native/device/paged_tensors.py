"""Weights and cache of devices with memory of their own, by torch's own operators: what CUDA and NPU have in common."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from mindserve_engine.native.device.base import Linear
from mindserve_engine.native.device.placing import HostBuffer, place
from mindserve_engine.native.weights.quantised import LinearWeight, widen

LayerPair = tuple[Tensor, Tensor]
"""Keys and values of a layer, [blocks, block size, KV, D] each."""


def zero_pairs(shape: tuple[int, ...], num_layers: int, dtype: torch.dtype, device: torch.device) -> list[LayerPair]:
    """An empty cache."""

    def zeros() -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=device)

    return [(zeros(), zeros()) for _ in range(num_layers)]


def copy_pair_blocks(
    caches: list[LayerPair], pairs: list[tuple[int, int]], device: torch.device, host_buffer: HostBuffer
) -> None:
    """Whole blocks of all layers, (from, to) each: all are read before any is written."""
    sources, destinations = zip(*pairs, strict=True)
    read, written = place(device, host_buffer, (sources, torch.int64), (destinations, torch.int64))
    for half in (half for cache in caches for half in cache):
        half.index_copy_(0, written, half.index_select(0, read))


def wide_linear(weight: LinearWeight, bias: Tensor | None, dtype: torch.dtype, device: torch.device) -> Linear:
    """Quantised weights are widened once, when they are loaded."""
    matrix = widen(weight).to(dtype).to(device)
    offset = None if bias is None else bias.to(dtype).to(device)
    return lambda x: functional.linear(x, matrix, offset)
