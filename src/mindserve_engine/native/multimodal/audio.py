"""The tower of Qwen2-Audio, on transformers' modules: Whisper's features, its encoder, a projection."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mindserve_engine.native.multimodal.blocks import ROWS, TowerLayer, run_layer
from mindserve_engine.types import MediaItem

_FRAMES: Final = 4 * ROWS
"""Of features in a piece of the convolutions."""


class AudioTower:
    """Implements ``Tower``. Only as much is computed as the recording is long: what lies behind it is masked."""

    def __init__(self, module: Any, projector: Any, extractor: Any, *, dtype: torch.dtype) -> None:
        """``module`` and ``projector``: transformers' audio encoder and its projection, with their weights;
        ``extractor``: its WhisperFeatureExtractor."""
        self._module = module
        self._projector = projector
        self._extractor = extractor
        self._dtype = dtype
        self._layers = [_take_apart(layer) for layer in module.layers]

    def encode(self, item: MediaItem) -> Iterator[Tensor | None]:
        """``None`` after each piece of work; the embeddings [n, hidden] at the end."""
        features = self._features(item)
        yield None
        num_rows = (-(-item.shape[0] // self._extractor.hop_length) + 1) // 2
        x = yield from self._convolve(features, num_rows)
        x += self._module.embed_positions.weight[:num_rows]
        for layer in self._layers:
            for _ in run_layer(layer, x, None, [0, num_rows]):
                yield None
        pooled = self._module.avg_pooler(x.T[None])[0].T
        yield self._projector(self._module.layer_norm(pooled))

    def peak_bytes(self, num_patches: int) -> int:
        """Memory for the longest recording."""
        width, rows = int(self._module.config.d_model), int(self._module.max_source_positions)
        return rows * (2 * width + width + 2 * 3 * width) * self._dtype.itemsize

    def _features(self, item: MediaItem) -> Tensor:
        """[bins, frames] of the recording, padded with silence to the model's length."""
        samples = np.frombuffer(item.data, np.float32)
        rate = self._extractor.sampling_rate
        features = self._extractor(samples, sampling_rate=rate, padding="max_length", return_tensors="np")
        return torch.from_numpy(features["input_features"][0]).to(self._dtype)

    def _convolve(self, features: Tensor, num_rows: int) -> Generator[None, None, Tensor]:
        """[bins, frames] -> [num_rows, width]: a row for two frames."""
        first, second = self._module.conv1, self._module.conv2
        wanted = min(features.shape[1], 2 * num_rows + 1)
        padded = functional.pad(features, (1, 1))
        halves = []
        for start in range(0, wanted, _FRAMES):
            part = padded[None, :, start : min(start + _FRAMES, wanted) + 2]
            halves.append(functional.gelu(functional.conv1d(part, first.weight, first.bias)))
            yield
        padded = functional.pad(torch.cat(halves, dim=2), (1, 1))
        rows = []
        for start in range(0, num_rows, ROWS):
            part = padded[..., 2 * start : 2 * min(start + ROWS, num_rows) + 1]
            rows.append(functional.gelu(functional.conv1d(part, second.weight, second.bias, stride=2)))
            yield
        return torch.cat(rows, dim=2)[0].T.contiguous()


def _take_apart(layer: Any) -> TowerLayer:
    attention = layer.self_attn

    def projections(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        shape = (len(x), attention.num_heads, attention.head_dim)
        query = attention.q_proj(x) * attention.scaling  # before the product, as Whisper has it
        return query.view(shape), attention.k_proj(x).view(shape), attention.v_proj(x).view(shape)

    def feed(x: Tensor) -> Tensor:
        fed: Tensor = layer.fc2(layer.activation_fn(layer.fc1(x)))
        return fed

    return TowerLayer(
        attention_norm=layer.self_attn_layer_norm,
        projections=projections,
        output=attention.out_proj,
        feed_norm=layer.final_layer_norm,
        feed=feed,
        scale=1.0,
    )
