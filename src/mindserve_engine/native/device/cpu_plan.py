"""Where the tokens of one step lie in the CPU cache, worked out once per step for all layers.

The cache of a layer is one tensor [2, blocks, KV heads, block size, D]: keys, then values, each head's tokens of a
block side by side. It is read in tiles of 32 tokens: picking a sequence's tiles head by head gives [KV, length, D] in
one copy, ready for batched products, and wastes at most 31 tokens per sequence whatever the block size is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mindserve_engine.native.batch import StepBatch

TILE: Final = 32
_MAX_GROUP_TOKENS: Final = 16384
"""Padded tokens gathered together: beyond this the copy would fall out of the caches of the processor."""
_MAX_PADDING: Final = 1.5
"""Sequences are computed together while the longest is at most this many times the shortest (and 64 tokens more)."""

IntArray = NDArray[np.int64]


@dataclass(slots=True)
class Cells:
    """Sequences gathered together: which tiles, and how many tokens of them are real."""

    tiles: IntArray
    """[B, n] tile numbers (block * tiles per block + tile in block); beyond a sequence's end its first tile repeats."""
    lengths: IntArray
    """[B] tokens in the cache."""
    num_tokens: int
    """Tokens gathered for each sequence: n tiles."""


@dataclass(slots=True)
class DecodeGroup:
    """Sequences with one new token each."""

    rows: Tensor
    """[B] their rows in the batch."""
    cells: Cells
    masks: dict[tuple[int | None, torch.dtype], Tensor] = field(default_factory=dict)


@dataclass(slots=True)
class PromptPart:
    """One sequence with several new tokens."""

    start: int
    stop: int
    """Its rows of the batch."""
    cells: Cells | None
    """``None`` when all its tokens are new: they are at hand without reading the cache."""
    masks: dict[tuple[int | None, torch.dtype], Tensor] = field(default_factory=dict)

    @property
    def num_new(self) -> int:
        return self.stop - self.start


@dataclass(slots=True)
class CpuPlan:
    """The step's cache writes and reads."""

    block_size: int
    tile: int
    slots: IntArray
    """[T]"""
    stale_tiles: IntArray
    """Tiles begun but not filled in this step: what a former owner left in them must not be read."""
    decode: list[DecodeGroup]
    prompts: list[PromptPart]
    indexes: dict[tuple[str, int, int], Tensor] = field(default_factory=dict)
    """Index tensors by (use, which group, KV heads): layers of one shape share them."""

    @property
    def num_tokens(self) -> int:
        return len(self.slots)

    def write_index(self, num_blocks: int, kv_heads: int) -> Tensor:
        """[2 * T * KV] rows of the cache seen as [2 * blocks * KV * block size, D]."""
        key = ("write", 0, kv_heads)
        if key not in self.indexes:
            block, offset = np.divmod(self.slots, self.block_size)
            rows = (block[:, None] * kv_heads + np.arange(kv_heads)) * self.block_size + offset[:, None]
            self.indexes[key] = torch.from_numpy(_both_halves(rows, num_blocks * kv_heads * self.block_size))
        return self.indexes[key]

    def stale_index(self, num_blocks: int, kv_heads: int) -> Tensor:
        """Rows of the cache seen as [2 * blocks * KV * tiles per block, tile * D]."""
        key = ("stale", 0, kv_heads)
        if key not in self.indexes:
            self.indexes[key] = self._tile_index(self.stale_tiles[None], num_blocks, kv_heads)
        return self.indexes[key]

    def read_index(self, which: int, cells: Cells, num_blocks: int, kv_heads: int) -> Tensor:
        """[2 * B * KV * n] rows of the same view; ``which`` numbers the step's decode groups, then prompt parts."""
        key = ("read", which, kv_heads)
        if key not in self.indexes:
            self.indexes[key] = self._tile_index(cells.tiles, num_blocks, kv_heads)
        return self.indexes[key]

    def _tile_index(self, tiles: IntArray, num_blocks: int, kv_heads: int) -> Tensor:
        per_block = self.block_size // self.tile
        block, part = np.divmod(tiles, per_block)
        heads = np.arange(kv_heads)[None, :, None]
        rows = (block[:, None, :] * kv_heads + heads) * per_block + part[:, None, :]
        return torch.from_numpy(_both_halves(rows, num_blocks * kv_heads * per_block))


def _both_halves(rows: IntArray, half: int) -> IntArray:
    """The same rows among the keys and among the values."""
    flat = rows.reshape(-1)
    return np.concatenate([flat, flat + half])


def plan_step(batch: StepBatch, block_size: int) -> CpuPlan:
    """Split the batch into decode groups of like length and single prompt parts."""
    tile = gcd(TILE, block_size)
    ends = np.asarray(batch.query_ends, dtype=np.int64)
    starts = np.concatenate([[0], ends[:-1]])
    lengths = np.asarray(batch.kv_lengths, dtype=np.int64)
    num_new = ends - starts
    single = np.flatnonzero(num_new == 1)
    prompts = [
        PromptPart(
            int(starts[row]),
            int(ends[row]),
            None if num_new[row] == lengths[row] else _cells(batch, np.asarray([row]), lengths, block_size, tile),
        )
        for row in np.flatnonzero(num_new > 1)
    ]
    slots = np.asarray(batch.slots, dtype=np.int64)
    decode = [
        DecodeGroup(torch.from_numpy(starts[members]), _cells(batch, members, lengths, block_size, tile))
        for members in _groups_of_like_length(single, lengths, tile)
    ]
    return CpuPlan(block_size, tile, slots, _stale_tiles(slots, ends, num_new, tile), decode, prompts)


def _stale_tiles(slots: IntArray, ends: IntArray, num_new: IntArray, tile: int) -> IntArray:
    last = slots[ends - 1]
    offset = last % tile
    begun_now = (offset < num_new) & (offset != tile - 1)
    stale: IntArray = last[begun_now] // tile
    return stale


def _groups_of_like_length(rows: IntArray, lengths: IntArray, tile: int) -> list[IntArray]:
    """Batch rows in groups, longest first, so that padding stays cheap and a group fits the processor's caches."""
    order = rows[np.argsort(-lengths[rows], kind="stable")]
    groups: list[IntArray] = []
    begin = 0
    while begin < len(order):
        longest = int(lengths[order[begin]])
        fits = lengths[order[begin:]] * _MAX_PADDING + 64 >= longest
        room = max(1, _MAX_GROUP_TOKENS // (-(-longest // tile) * tile))
        size = min(int(fits.sum()), room)
        groups.append(np.sort(order[begin : begin + size]))
        begin += size
    return groups


def _cells(batch: StepBatch, rows: IntArray, lengths: IntArray, block_size: int, tile: int) -> Cells:
    longest = int(lengths[rows].max())
    num_tiles = -(-longest // tile)
    per_block = block_size // tile
    block_of_tile, part = np.divmod(np.arange(num_tiles), per_block)
    tables = np.zeros((len(rows), int(block_of_tile[-1]) + 1), dtype=np.int64)
    for line, row in zip(tables, rows, strict=True):
        blocks = batch.block_tables[row][: len(line)]
        line[: len(blocks)] = blocks
    tiles = tables[:, block_of_tile] * per_block + part
    past_end = np.arange(num_tiles)[None, :] * tile >= lengths[rows, None]
    tiles = np.where(past_end, tiles[:, :1], tiles)
    return Cells(tiles, lengths[rows], num_tiles * tile)
