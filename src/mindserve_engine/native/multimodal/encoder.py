"""A model's tower behind the interface by which the scheduler's side drives it, and the embeddings it has made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from mindserve_engine.media.positions import PositionRule
from mindserve_engine.native.media.prompt import Overlay
from mindserve_engine.types import MediaItem


class Tower(Protocol):
    """Turns items into embeddings, one item at a time."""

    def encode(self, item: MediaItem) -> Iterator[Tensor | None]:
        """A turn for each piece of work; those that give a tensor give the next part of the embeddings [n, hidden]."""

    def peak_bytes(self, num_patches: int) -> int:
        """Memory that an item takes while it is encoded; ``num_patches`` are those of the largest image."""


class TowerEncoder:
    """Implements ``media.encoding.Encoder``."""

    def __init__(self, tower: Tower, *, rule: PositionRule | None, hidden: int, dtype: torch.dtype) -> None:
        self.rule = rule
        self.token_bytes = hidden * dtype.itemsize
        self._hidden = hidden
        self._dtype = dtype
        self._tower = tower
        self._embeddings: dict[bytes, Tensor] = {}
        self._item: MediaItem | None = None
        self._pieces: Iterator[Tensor | None] = iter(())
        self._parts: list[Tensor] = []

    def peak_bytes(self, num_patches: int) -> int:
        """The tower's."""
        return self._tower.peak_bytes(num_patches)

    def begin(self, item: MediaItem) -> None:
        self._item, self._parts = item, []
        self._pieces = self._tower.encode(item)

    def advance(self) -> bool:
        with torch.inference_mode():
            for part in self._pieces:
                if part is None:
                    return False
                self._parts.append(part.to(self._dtype))
        assert self._item is not None
        embeddings = torch.cat(self._parts)
        if embeddings.shape != (self._item.num_tokens, self._hidden):
            raise RuntimeError(f"{self._item.num_tokens} tokens have embeddings of shape {list(embeddings.shape)}")
        self._embeddings[self._item.digest] = embeddings
        self.stop()
        return True

    def stop(self) -> None:
        self._item, self._pieces, self._parts = None, iter(()), []

    def forget(self, digest: bytes) -> None:
        del self._embeddings[digest]

    def overlay(self, overlay: Overlay) -> tuple[int, Tensor]:
        """The batch's first row and the embeddings that stand there."""
        return overlay.row, self._embeddings[overlay.digest][overlay.start : overlay.stop]
