"""Numbers of the host on their way to a device: several in one copy, which the host does not wait for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

HostBuffer = Callable[[int], Tensor]
"""``Device.host_buffer``."""
Numbers = Sequence[int] | Sequence[float] | NDArray[np.generic]

_WORD = torch.int64.itemsize


def place(device: torch.device, host_buffer: HostBuffer, *parts: tuple[Numbers, torch.dtype]) -> list[Tensor]:
    """[n] tensors on ``device``, each of its own numbers and type. On a device with memory of its own they are views of
    one buffer, each at a whole word of it."""
    arrays = [torch.as_tensor(np.asarray(numbers)).to(dtype) for numbers, dtype in parts]
    if device.type == "cpu":
        return arrays
    words = [-(-array.numel() * array.itemsize // _WORD) for array in arrays]
    host = host_buffer(sum(words))
    for room, array in zip(host.split_with_sizes(words), arrays, strict=True):
        room.view(array.dtype)[: array.numel()] = array
    placed = host.to(device, non_blocking=True).split_with_sizes(words)
    return [room.view(array.dtype)[: array.numel()] for room, array in zip(placed, arrays, strict=True)]
