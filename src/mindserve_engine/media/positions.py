"""Multimodal rotary positions (M-RoPE, Wang et al., 2024): a time, a row and a column for each token.

Text counts all three up together. The tokens of an image or video get the coordinates of their place in it, from where
the text before them ended. How far the text after them is moved is read in two ways: behind the largest coordinate, as
the models were trained, or behind the longer side, as transformers 5.24 has it. They differ for videos whose time is
longer than both sides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mindserve_engine.types import MediaItem, MediaKind

Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PositionRule:
    """How a model counts."""

    pixels_per_token: int
    """On a side."""
    frames_per_step: int
    tokens_per_second: float | None = None
    """Time of a video counts in these; ``None``: in steps."""
    is_by_side: bool = False
    """Text goes on behind the longer side of the item before it, whatever its time."""


def prompt_positions(num_tokens: int, items: Iterable[MediaItem], rule: PositionRule) -> Positions:
    """[3, num_tokens]: time, row and column."""
    positions = np.empty((3, num_tokens), np.int64)
    at = following = 0
    for item in items:
        positions[:, at : item.start] = np.arange(following, following + item.start - at)
        following += item.start - at
        at = item.start + item.num_tokens
        grid = _grid(item, rule)
        positions[:, item.start : at] = grid + following
        longer_side = grid[1:].max() + 1
        following += int(longer_side if rule.is_by_side else max(longer_side, grid[0].max() + 1))
    positions[:, at:] = np.arange(following, following + num_tokens - at)
    return positions


def _grid(item: MediaItem, rule: PositionRule) -> Positions:
    """[3, tokens of the item], from 0."""
    height, width = (side // rule.pixels_per_token for side in item.shape[-3:-1])
    num_steps = item.num_tokens // (height * width)
    step = np.float32(1)
    if item.kind is MediaKind.VIDEO and rule.tokens_per_second is not None:
        seconds = np.float32(item.seconds_per_frame * rule.frames_per_step)
        step = np.float32(rule.tokens_per_second) * seconds
    times = (np.arange(num_steps, dtype=np.float32) * step).astype(np.int64)
    time, row, column = np.meshgrid(times, np.arange(height), np.arange(width), indexing="ij")
    return np.stack([time.ravel(), row.ravel(), column.ravel()])
