"""The media of one prompt, over the token positions of its sequences."""

from __future__ import annotations

import struct
from collections.abc import Container, Iterator
from dataclasses import dataclass

import numpy as np

from mindserve_engine.media.positions import PositionRule, Positions, prompt_positions
from mindserve_engine.types import GenerationRequest, MediaItem


@dataclass(frozen=True, slots=True)
class Overlay:
    """Rows of a step's batch whose embeddings are those of an item, not of the placeholders' ids."""

    row: int
    """The first."""
    digest: bytes
    start: int
    """Of the item's embeddings."""
    stop: int


@dataclass(frozen=True, slots=True, eq=False)
class PromptMedia:
    """Shared by all sequences of a request."""

    items: tuple[MediaItem, ...]
    positions: Positions | None
    """[3, prompt tokens + 1] where the model counts in M-RoPE: the last is the first generated token's."""

    @classmethod
    def of(cls, request: GenerationRequest, rule: PositionRule | None) -> PromptMedia | None:
        """``None`` for a prompt of text alone: all three coordinates of its tokens are their positions."""
        if not request.media:
            return None
        num_tokens = len(request.prompt_token_ids)
        positions = None if rule is None else prompt_positions(num_tokens + 1, request.media, rule)
        return cls(request.media, positions)

    def positions_of(self, start: int, stop: int) -> Positions | None:
        """[3, stop - start]: beyond the prompt they count on as more text of it would."""
        if self.positions is None:
            return None
        num_tokens = self.positions.shape[1] - 1
        if stop <= num_tokens:
            return self.positions[:, start:stop]
        generated = np.arange(max(start, num_tokens), stop) - num_tokens + self.positions[0, -1]
        tail = np.broadcast_to(generated, (3, len(generated)))
        return np.concatenate([self.positions[:, start:num_tokens], tail], axis=1)

    def from_token(self, start: int) -> Iterator[MediaItem]:
        """The items of which something lies at ``start`` or behind it."""
        return (item for item in self.items if item.start + item.num_tokens > start)

    def missing(self, start: int, encoded: Container[bytes]) -> MediaItem | None:
        """The first item from ``start`` on without embeddings."""
        return next((item for item in self.from_token(start) if item.digest not in encoded), None)

    def overlays(self, start: int, stop: int, row: int) -> Iterator[Overlay]:
        """For the tokens ``start:stop``, whose first is the batch's ``row``."""
        for item in self.from_token(start):
            first, last = max(start, item.start), min(stop, item.start + item.num_tokens)
            if first < last:
                yield Overlay(row + first - start, item.digest, first - item.start, last - item.start)

    def key(self, start: int, stop: int) -> bytes:
        """What the placeholders among the tokens ``start:stop`` stand for."""
        return b"".join(
            item.digest + struct.pack("<q", item.start - start) for item in self.from_token(start) if item.start < stop
        )
