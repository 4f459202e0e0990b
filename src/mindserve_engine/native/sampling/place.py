"""Settings of rows on their way to where the logits are."""

from __future__ import annotations

from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from mindserve_engine.native.device.placing import HostBuffer, Numbers, place


class Place(Protocol):
    """Numbers to the device, each with the type that they get there: [n] tensors."""

    def __call__(self, *parts: tuple[Numbers, torch.dtype]) -> list[Tensor]: ...


def placing(device: torch.device, host_buffer: HostBuffer) -> Place:
    return partial(place, device, host_buffer)


def words(num_words: int) -> Tensor:
    """A ``HostBuffer`` for what stays on the host."""
    return torch.empty(num_words, dtype=torch.int64)


on_host: Place = placing(torch.device("cpu"), words)
