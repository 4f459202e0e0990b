"""Pixels as the vision towers take them: normalised, cut into patches, in the order in which patches are merged.

The numbers are those of transformers' processors to the bit, which round differently for images and for videos.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mindserve_engine.types import MediaItem, MediaKind

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float32]

_VALUES: Final = np.arange(256)


@dataclass(frozen=True, slots=True)
class PatchShape:
    size: int
    """Pixels on a side."""
    merge: int
    """Patches on a side that become one token."""
    frames: int

    @property
    def values(self) -> int:
        """Of one patch: colours x frames x pixels."""
        return 3 * self.frames * self.size**2


@dataclass(frozen=True, slots=True)
class Normalisation:
    """``(pixel * scale - mean) / deviation`` for each colour."""

    scale: float
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def table(self, kind: MediaKind) -> Floats:
        """[256, 3]: what each value of each colour becomes."""
        mean, deviation = np.array(self.mean, np.float32), np.array(self.deviation, np.float32)
        if kind is MediaKind.IMAGE:
            scaled = (_VALUES * self.scale).astype(np.float32)
            return np.asarray((scaled[:, None] - mean) / deviation)
        inverse = np.float32(1.0 / self.scale)
        return np.asarray((_VALUES.astype(np.float32)[:, None] - mean * inverse) / (deviation * inverse))


class Patches:
    """The patches of one item, made where they are wanted: all together are many times larger than the pixels."""

    def __init__(self, item: MediaItem, shape: PatchShape, normalisation: Normalisation | None) -> None:
        """``normalisation``: ``None`` leaves the bytes as they are, for who normalises them later."""
        pixels = np.frombuffer(item.data, np.uint8).reshape(item.shape)
        self._frames = pixels[None] if item.kind is MediaKind.IMAGE else pixels
        self._shape = shape
        self._table = None if normalisation is None else normalisation.table(item.kind)
        _, height, width, _ = self._frames.shape
        self.num_steps = -(-len(self._frames) // shape.frames)
        self.height, self.width = height // shape.size, width // shape.size
        """In patches."""

    def bands(self, step: int) -> Iterator[Floats | Pixels]:
        """[patches, values of a patch] of each row of tokens of one step in time."""
        for number in range(self.height // self._shape.merge):
            yield self._band(step, number)

    def _band(self, step: int, number: int) -> Floats | Pixels:
        shape, rows = self._shape, self._shape.merge * self._shape.size
        last = len(self._frames) - 1
        frames = [min(step * shape.frames + offset, last) for offset in range(shape.frames)]
        pixels = self._frames[frames, number * rows : (number + 1) * rows]
        values: Floats | Pixels = np.moveaxis(pixels, -1, 0)
        if self._table is not None:
            values = np.stack([self._table[values[colour], colour] for colour in range(3)])
        side = (shape.merge, shape.size)
        parts = values.reshape(3, shape.frames, *side, self.width // shape.merge, *side)
        # colour, frame, row of patch and pixel, column of token, patch and pixel
        ordered = parts.transpose(4, 2, 5, 0, 1, 3, 6)
        return ordered.reshape(-1, shape.values)
