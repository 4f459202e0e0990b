"""Layers of a tower in pieces: no item makes one cost more than its bound, and together they are the layer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from mindserve_engine.native.multimodal.blocks import ROWS, TowerLayer, run_layer

HEADS, WIDTH = 2, 8


class Costs(TorchDispatchMode):
    """What has been computed since the last look: rows by keys of attention, and most rows that one operator made."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = self.rows = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if "attention" in name:
            self.scores += args[0].shape[-2] * args[1].shape[-2]
        elif isinstance(found, Tensor) and not func.is_view and "empty" not in name and found.ndim > 1:
            self.rows = max(self.rows, found.numel() // WIDTH)
        return found

    def look(self) -> tuple[int, int]:
        found = self.scores, self.rows
        self.scores = self.rows = 0
        return found


def layer() -> TowerLayer:
    generator = torch.Generator().manual_seed(3)
    first, second, third = (torch.randn(WIDTH, WIDTH, generator=generator) / 4 for _ in range(3))

    def projections(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = (x @ weight for weight in (first, second, third))
        shape = (len(x), HEADS, WIDTH // HEADS)
        return query.view(shape), key.view(shape), value.view(shape)

    return TowerLayer(
        attention_norm=lambda x: x * 2,
        projections=projections,
        output=lambda x: x @ second,
        feed_norm=lambda x: x + 1,
        feed=lambda x: functional.gelu(x @ third),
        scale=0.7,
    )


def whole(one: TowerLayer, x: Tensor, bounds: list[int]) -> Tensor:
    queries, keys, values = (tensor.transpose(0, 1) for tensor in one.projections(one.attention_norm(x)))
    window = torch.bucketize(torch.arange(len(x)), torch.tensor(bounds[1:]), right=True)
    mask = window[:, None] == window
    mixed = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=one.scale)
    x = x + one.output(mixed.transpose(0, 1).flatten(1))
    return x + one.feed(one.feed_norm(x))


def pieces(x: Tensor, bounds: list[int]) -> Iterator[tuple[int, int]]:
    with torch.inference_mode(), Costs() as costs:
        for _ in run_layer(layer(), x, None, bounds):
            yield costs.look()


@pytest.mark.parametrize("num_rows", [1225 * 4, 4096 * 4, 16384 * 4])
def test_a_piece_is_bounded_whatever_the_size(num_rows: int) -> None:
    """By what an image of 1,225 tokens takes."""
    num_projections = -(-num_rows // ROWS)
    begun = pieces(torch.zeros(num_rows, WIDTH), [0, num_rows])
    found = list(islice(begun, num_projections + 40))
    assert [scores for scores, _ in found[:num_projections]] == [0] * num_projections
    most = max(scores for scores, _ in found)
    assert 0.8 * ROWS * 4900 <= most <= ROWS * 4900
    assert max(rows for _, rows in found) <= ROWS


@pytest.mark.parametrize("bounds", [[0, 1], [0, 64, 130, 200], [0, 7000]])
def test_pieces_make_the_layer(bounds: list[int]) -> None:
    x = torch.randn(bounds[-1], WIDTH, generator=torch.Generator().manual_seed(5))
    expected = whole(layer(), x, bounds)
    list(pieces(x, bounds))
    torch.testing.assert_close(x, expected, rtol=1e-4, atol=1e-5)
