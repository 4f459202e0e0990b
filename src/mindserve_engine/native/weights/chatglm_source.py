"""Weights of ChatGLM models by the names and in the order that the lean decoder knows.

Their files have queries, keys and values in one matrix, gate and up in another. They turn neighbouring pairs of the
first half of each head (0 with 1, 2 with 3, ...), the decoder turns the first half of a whole head against its second.
Scores do not change when queries and keys are reordered alike, so the rows of both are: even numbers and half of what
is not turned come first, odd numbers and the other half second. What is not turned gets the frequency 0 (``rope``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from transformers import PretrainedConfig

from mindserve_engine.native.lora.adapter import LoraPair
from mindserve_engine.native.models.chatglm import TURNED_SHARE
from mindserve_engine.native.weights.source import WeightSource

_ENDS: Final = {
    "model.embed_tokens.": "transformer.embedding.word_embeddings.",
    "model.norm.": "transformer.encoder.final_layernorm.",
    "lm_head.": "transformer.output_layer.",
}
_LAYERS: Final = ("model.layers.", "transformer.encoder.layers.")
_RENAMED: Final = {"self_attn.o_proj": "self_attention.dense", "mlp.down_proj": "mlp.dense_4h_to_h"}
_QKV: Final = "self_attention.query_key_value"
_GATE_UP: Final = "mlp.dense_h_to_4h"


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of a fused matrix."""

    whole: str
    num_whole: int
    start: int
    stop: int
    is_turned: bool = False

    def of(self, matrix: Tensor, head_dim: int) -> Tensor:
        """[num_whole, ...] -> [stop - start, ...]."""
        rows = matrix[self.start : self.stop]
        if not self.is_turned:
            return rows
        return rows.reshape(-1, head_dim, *rows.shape[1:])[:, half_order(head_dim)].flatten(0, 1)


def half_order(head_dim: int) -> Tensor:
    """[D] where each row of a head that is turned by halves stands in one that is turned by pairs."""
    turned = int(head_dim * TURNED_SHARE)
    middle = (turned + head_dim) // 2
    numbers = torch.arange(head_dim)
    return torch.cat([numbers[0:turned:2], numbers[turned:middle], numbers[1:turned:2], numbers[middle:]])


def _parts(config: PretrainedConfig) -> dict[str, _Part]:
    """By the layers' names within a decoder layer."""
    width, kv_width = (n * config.head_dim for n in (config.num_attention_heads, config.num_key_value_heads))
    num_qkv, inner = width + 2 * kv_width, config.intermediate_size
    return {
        "self_attn.q_proj": _Part(_QKV, num_qkv, 0, width, is_turned=True),
        "self_attn.k_proj": _Part(_QKV, num_qkv, width, width + kv_width, is_turned=True),
        "self_attn.v_proj": _Part(_QKV, num_qkv, width + kv_width, num_qkv),
        "mlp.gate_proj": _Part(_GATE_UP, 2 * inner, 0, inner),
        "mlp.up_proj": _Part(_GATE_UP, 2 * inner, inner, 2 * inner),
    }


class ChatGlmSource:
    """Implements ``WeightSource``."""

    def __init__(self, inner: WeightSource, config: PretrainedConfig) -> None:
        self.weights_name = inner.weights_name
        self.rope_divisors = inner.rope_divisors
        self._inner = inner
        self._head_dim: int = config.head_dim
        self._has_bias: bool = config.attention_bias
        self._parts = _parts(config)

    def __contains__(self, name: str) -> bool:
        module, kind = name.rsplit(".", 1)
        if kind == "bias" and self._part(module) in self._parts:
            return self._has_bias and self._parts[self._part(module)].whole == _QKV  # the config says so, not the file
        return _in_file(name) in self._inner

    def tensor(self, name: str, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        module, kind = name.rsplit(".", 1)
        part = self._parts.get(self._part(module))
        if part is None:
            return self._inner.tensor(_in_file(name), shape, dtype)
        whole = _in_file(f"{module.rsplit('.', 2)[0]}.{part.whole}.{kind}")
        return part.of(self._inner.tensor(whole, (part.num_whole, *shape[1:]), dtype), self._head_dim)

    def linear(self, name: str, shape: tuple[int, int]) -> Tensor:
        return self.tensor(name, shape)

    @staticmethod
    def _part(module: str) -> str:
        return ".".join(module.rsplit(".", 2)[1:])


def _in_file(name: str) -> str:
    for ours, theirs in _ENDS.items():
        if name.startswith(ours):
            return theirs + name.removeprefix(ours)
    ours, theirs = _LAYERS
    number, _, rest = name.removeprefix(ours).partition(".")
    for plain, other in _RENAMED.items():
        rest = rest.replace(plain, other)
    return f"{theirs}{number}.{rest}"


def split_pairs(pairs: dict[str, LoraPair], config: PretrainedConfig) -> dict[str, LoraPair]:
    """An adapter's additions to the layers of the files as additions to those of the decoder. What fits none of them
    keeps its name."""
    split: dict[str, LoraPair] = {}
    for layer, pair in pairs.items():
        number, _, own = layer.removeprefix(_LAYERS[1]).partition(".")
        parts = {name: part for name, part in _parts(config).items() if part.whole == own}
        if parts and all(part.num_whole == len(pair.up) for part in parts.values()):
            for name, part in parts.items():
                split[f"{_LAYERS[0]}{number}.{name}"] = LoraPair(pair.down, part.of(pair.up, config.head_dim))
            continue
        plain = next((name for name, other in _RENAMED.items() if other == own), None)
        split[f"{_LAYERS[0]}{number}.{plain}" if plain else layer] = pair
    return split
