"""The vision towers of Qwen2-VL and Qwen2.5-VL, on transformers' modules.

Neither tower looks from one step in time to another, so a video goes through it step by step and needs no more memory
than an image of its size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers.vision_utils import get_vision_position_ids, get_vision_window_index

from mindserve_engine.media.patches import Normalisation, Patches, PatchShape
from mindserve_engine.native.multimodal.blocks import ROWS, Rotation, TowerLayer, run_layer
from mindserve_engine.types import MediaItem


class VisionTower:
    """Implements ``Tower``."""

    def __init__(self, module: Any, shape: PatchShape, normalisation: Normalisation, *, dtype: torch.dtype) -> None:
        """``module``: transformers' vision model with its weights."""
        self._shape = shape
        self._normalisation = normalisation
        self._dtype = dtype
        self._module = module
        self._patch_weight = module.patch_embed.proj.weight.flatten(1)  # a patch is all that its convolution sees
        # made anew: its frequencies are no weights, and the module was built without any numbers
        self._rotary = type(module.rotary_pos_emb)(module.config)
        self._layers = [_take_apart(block) for block in module.blocks]
        self._windows: int | None = getattr(module, "window_size", None)
        self._whole = set(getattr(module, "fullatt_block_indexes", range(len(self._layers))))

    def encode(self, item: MediaItem) -> Iterator[Tensor | None]:
        """``None`` after each piece of work; parts [n, hidden] of the embeddings, in order, when they are there."""
        patches = Patches(item, self._shape, self._normalisation)
        order, bounds = self._order(patches)
        rotation = self._rotation(patches, order)
        places = torch.argsort(order)
        for step in range(patches.num_steps):
            rows = self._patch_weight.new_empty((len(order), self._shape.merge**2, len(self._patch_weight)))
            done = 0
            for band in patches.bands(step):
                values = torch.from_numpy(band).to(self._dtype)
                tokens = functional.linear(values, self._patch_weight).view(-1, *rows.shape[1:])
                rows.index_copy_(0, places[done : done + len(tokens)], tokens)
                done += len(tokens)
                yield None
            x = rows.flatten(0, 1)
            for number, layer in enumerate(self._layers):
                seen = [0, len(x)] if number in self._whole else bounds
                for _ in run_layer(layer, x, rotation, seen):
                    yield None
            yield from self._merge(x, order)

    def peak_bytes(self, num_patches: int) -> int:
        """Memory that one step in time of so many patches needs beside its pixels."""
        width = int(self._patch_weight.shape[0])
        per_row = 2 * width + 3 * width  # itself and what is made of it at the end, projections
        return num_patches * per_row * self._dtype.itemsize

    def _merge(self, x: Tensor, order: Tensor) -> Iterator[Tensor | None]:
        """The embeddings of one step in time."""
        merge = self._shape.merge**2
        parts = []
        rows = max(1, ROWS // merge) * merge
        for start in range(0, len(x), rows):
            parts.append(self._module.merger(x[start : start + rows]))
            yield None
        merged = torch.cat(parts)
        yield torch.empty_like(merged).index_copy_(0, order, merged)

    def _order(self, patches: Patches) -> tuple[Tensor, list[int]]:
        """The order of tokens in which a window's stand together, and where the windows end, in patches."""
        num_tokens = patches.height * patches.width // self._shape.merge**2
        if self._windows is None:
            return torch.arange(num_tokens), []
        grid = torch.tensor([[1, patches.height, patches.width]])
        index, bounds = get_vision_window_index(
            grid, spatial_merge_size=self._shape.merge, window_size=self._windows, patch_size=self._shape.size
        )
        return index, bounds.tolist()

    def _in_windows(self, x: Tensor, order: Tensor) -> Tensor:
        """Rows [patches, ...] in the order of the windows."""
        grouped = x.view(len(order), -1, *x.shape[1:])
        return grouped[order].view(x.shape)

    def _rotation(self, patches: Patches, order: Tensor) -> Rotation:
        grid = torch.tensor([[1, patches.height, patches.width]])
        places = get_vision_position_ids(grid, self._shape.merge)
        cos, sin = self._rotary(self._patch_weight, places)
        return Rotation(self._in_windows(cos, order)[:, None].float(), self._in_windows(sin, order)[:, None].float())


def _take_apart(block: Any) -> TowerLayer:
    attention = block.attn

    def projections(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = attention.qkv(x).view(len(x), 3, attention.num_heads, -1).unbind(1)
        return query, key, value

    return TowerLayer(
        attention_norm=block.norm1,
        projections=projections,
        output=attention.proj,
        feed_norm=block.norm2,
        feed=block.mlp,
        scale=attention.scaling,
    )
