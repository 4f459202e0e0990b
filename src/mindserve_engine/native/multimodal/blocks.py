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
_SCORES: Final = 64 * 4900
"""Most products of rows and keys in a piece of attention: the larger the item, the fewer rows see all of it at once."""

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
    projected: tuple[Tensor, ...] = ()
    for start in range(0, len(x), ROWS):
        query, key, value = layer.projections(layer.attention_norm(x[start : start + ROWS]))
        if rotation is not None:
            query, key = rotation.apply(query, start), rotation.apply(key, start)
        # written where they stay: to join them at the end would copy all of a large item in one piece
        projected = projected or tuple(one.new_empty((len(x), *one.shape[1:])) for one in (query, key, value))
        for whole, part in zip(projected, (query, key, value), strict=True):
            whole[start : start + len(part)] = part
        yield
    queries, keys, values = (whole.transpose(0, 1)[None] for whole in projected)
    for begin, end in itertools.pairwise(bounds):
        seen = slice(begin, end)
        for start in range(begin, end, ROWS):
            rows, mixed = slice(start, min(start + ROWS, end)), []
            for some in _attention_rows(rows, end - begin):
                found = functional.scaled_dot_product_attention(
                    queries[:, :, some], keys[:, :, seen], values[:, :, seen], scale=layer.scale
                )
                mixed.append(found[0].transpose(0, 1).flatten(1))
                yield
            x[rows] += layer.output(torch.cat(mixed))
            x[rows] += layer.feed(layer.feed_norm(x[rows]))
            yield


def _attention_rows(rows: slice, num_keys: int) -> Iterator[slice]:
    step = min(ROWS, max(1, _SCORES // num_keys))
    for start in range(rows.start, rows.stop, step):
        yield slice(start, min(start + step, rows.stop))
