"""Layers of a tower, computed piece by piece: a large item takes seconds in a single layer.

Everything in a layer but attention looks at one row at a time, and attention needs of the other rows only their keys
and values; so rows go through a layer in groups of fixed size, first all through the projections, then all through the
rest. The groups are cut by the item alone: what is computed depends on nothing else.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

ROWS: Final = 64
"""In a piece. At the width of 1,280 a piece takes about 60 ms on two cores, and fewer rows multiply less well."""

RowWise = Callable[[Tensor], Tensor]
"""[n, width] -> [n, width]."""


@dataclass(frozen=True, slots=True)
class TowerLayer:
    """One layer of transformers' modules, taken apart."""

    attention_norm: RowWise
    projections: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
    """[n, width] -> queries, keys and values, each [n, heads, D]."""
    output: RowWise
    feed_norm: RowWise
    feed: RowWise
    scale: float
    """Of the scores."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """Two-dimensional rotary positions of vision towers."""

    cos: Tensor
    """[n, 1, D] float32."""
    sin: Tensor

    def apply(self, x: Tensor, start: int) -> Tensor:
        """Rows from ``start`` on, rotated by halves."""
        rows = slice(start, start + len(x))
        wide = x.float()
        first, second = wide.chunk(2, dim=-1)
        turned = torch.cat([-second, first], dim=-1)
        return (wide * self.cos[rows] + turned * self.sin[rows]).to(x.dtype)


def run_layer(layer: TowerLayer, x: Tensor, rotation: Rotation | None, bounds: list[int]) -> Iterator[None]:
    """``x`` [n, width] becomes the layer's output, in place, a piece at each turn. Rows see those between the same two
    of ``bounds``, which begin with 0 and end with n."""
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    for start in range(0, len(x), ROWS):
        query, key, value = layer.projections(layer.attention_norm(x[start : start + ROWS]))
        if rotation is not None:
            query, key = rotation.apply(query, start), rotation.apply(key, start)
        parts.append((query, key, value))
        yield
    queries, keys, values = (torch.cat(tensors).transpose(0, 1) for tensors in zip(*parts, strict=True))
    del parts
    yield
    for begin, end in itertools.pairwise(bounds):
        for start in range(begin, end, ROWS):
            rows, seen = slice(start, min(start + ROWS, end)), slice(begin, end)
            mixed = functional.scaled_dot_product_attention(
                queries[None, :, rows], keys[None, :, seen], values[None, :, seen], scale=layer.scale
            )
            x[rows] += layer.output(mixed[0].transpose(0, 1).flatten(1))
            x[rows] += layer.feed(layer.feed_norm(x[rows]))
            yield
