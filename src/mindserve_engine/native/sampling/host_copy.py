"""Results of a step on their way to the host: all of them in one copy, which is the only one the host waits for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Read = Callable[[], list[Any]]
"""The tensor as (nested) lists, once it has been fetched."""


class HostCopy:
    """Tensors that are asked for one by one and fetched together."""

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []
        self._lists: list[list[Any]] = []

    def ask(self, tensor: Tensor) -> Read:
        """``tensor``: float32, bool, or whole numbers below 2**31."""
        place = len(self._tensors)
        self._tensors.append(tensor)
        return lambda: self._lists[place]

    def fetch(self) -> None:
        """Wait for everything asked for since the last time."""
        asked = self._tensors[len(self._lists) :]
        if asked:
            self._lists += [tensor.tolist() for tensor in _to_host(asked)]


def _to_host(tensors: list[Tensor]) -> list[Tensor]:
    if all(tensor.is_cpu for tensor in tensors):
        return tensors
    words = [_words(tensor).reshape(-1) for tensor in tensors]
    parts = torch.cat(words).cpu().split_with_sizes([len(part) for part in words])
    return [_unpacked(part, tensor) for part, tensor in zip(parts, tensors, strict=True)]


def _words(tensor: Tensor) -> Tensor:
    if tensor.dtype == torch.float32:
        return tensor.contiguous().view(torch.int32)
    return tensor.to(torch.int32)


def _unpacked(words: Tensor, tensor: Tensor) -> Tensor:
    held = words.view(torch.float32) if tensor.dtype == torch.float32 else words.to(tensor.dtype)
    return held.view(tensor.shape)
