"""The lean decoder: Llama, Mistral, Qwen2 (that of Qwen2-VL too), Qwen3 and ChatGLM families, written for flattened
batches over a paged cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from transformers import PretrainedConfig

from mindserve_engine.native.device.base import (
    AttentionShape,
    AttentionSpec,
    Device,
    DeviceBatch,
    Layer,
    LayerCache,
    LayerParts,
    LayerWidths,
    Linear,
)
from mindserve_engine.native.lora.linear import AdapterBank
from mindserve_engine.native.models.base import CacheShape
from mindserve_engine.native.models.chatglm import MODEL_TYPE
from mindserve_engine.native.models.head import RefinedHead
from mindserve_engine.native.models.rope import RotaryTable
from mindserve_engine.native.multimodal.encoder import TowerEncoder
from mindserve_engine.native.weights.quantised import LinearWeight, concatenate, move, rows_of
from mindserve_engine.native.weights.source import WeightSource

_FAMILIES: Final = frozenset({"llama", "mistral", "qwen2", "qwen2_vl_text", "qwen2_5_vl_text", "qwen3", MODEL_TYPE})


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """The numbers of a config that the decoder is built from."""

    num_layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    eps: float

    @classmethod
    def of(cls, config: PretrainedConfig) -> DecoderShape:
        heads = config.num_attention_heads
        return cls(
            num_layers=config.num_hidden_layers,
            hidden=config.hidden_size,
            inner=config.intermediate_size,
            heads=heads,
            kv_heads=getattr(config, "num_key_value_heads", None) or heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
            vocab_size=config.vocab_size,
            eps=config.rms_norm_eps,
        )

    @property
    def attention(self) -> AttentionSpec:
        """Of every layer."""
        return AttentionSpec(scale=self.head_dim**-0.5)


def is_lean(config: PretrainedConfig) -> bool:
    """Whether this decoder computes exactly what the config asks for; others take the generic path."""
    windowed = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    return (
        config.model_type in _FAMILIES
        and config.hidden_act == "silu"
        and not windowed
        and (_rotates_whole_heads(config) or config.model_type == MODEL_TYPE)
        and not getattr(config, "quantization_config", None)
    )


def _rotates_whole_heads(config: PretrainedConfig) -> bool:
    parameters: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    return bool(parameters.get("partial_rotary_factor", 1.0) == 1.0)


class Decoder:
    """Implements ``Model``."""

    has_fixed_steps = True

    def __init__(
        self,
        config: PretrainedConfig,
        source: WeightSource,
        device: Device,
        *,
        dtype: torch.dtype,
        cache_dtype: torch.dtype,
        max_positions: int,
        adapters: AdapterBank,
        progress: Callable[[float], None],
    ) -> None:
        self.dtype = dtype
        self.cache_dtype = cache_dtype
        self.weights_name = source.weights_name
        self.encoder: TowerEncoder | None = None
        self._device = device
        self._shape = shape = DecoderShape.of(config)
        self.cache_shapes = (CacheShape(shape.kv_heads, shape.head_dim),) * shape.num_layers
        self._rotary = RotaryTable(
            config,
            head_dim=shape.head_dim,
            max_positions=max_positions,
            dtype=dtype,
            device=device.torch_device,
            divisors=source.rope_divisors,
        )
        heads = AttentionShape(shape.heads, shape.kv_heads, shape.head_dim)
        device.self_test(heads, dtype, shape.attention, LayerWidths(shape.hidden, shape.inner))
        self._active = adapters.active
        loader = _Loader(shape, source, device, dtype, adapters)
        self._embedding = loader.embedding()
        self._layers: list[Layer] = []
        for number in range(shape.num_layers):
            self._layers.append(device.layer(loader.layer(number)))
            progress((number + 1) / (shape.num_layers + 1))
        self._norm = loader.norm("model.norm.weight")
        self._head = loader.head(self._embedding, tied=config.tie_word_embeddings)
        progress(1.0)

    def logits(self, batch: DeviceBatch, caches: list[LayerCache]) -> Tensor:
        self._active.rows = batch.adapter_rows
        factors = self._device.rotary_factors(*self._rotary.at(batch.positions))
        residual = rows_of(self._embedding, batch.token_ids).to(self.dtype)
        for row, media in batch.overlays:
            residual[row : row + len(media)] = media
        fed: Tensor | None = None
        for layer, cache in zip(self._layers, caches, strict=True):
            fed, residual = layer(fed, residual, factors, batch, cache)
        assert fed is not None
        return self._project(fed, residual, batch.last_rows)

    def _project(self, fed: Tensor, residual: Tensor, rows: Tensor) -> Tensor:
        """The head sees only the rows whose successors are sampled: in prefill it would be a fifth of the work."""
        if not len(rows):
            return fed.new_empty((0, self._shape.vocab_size), dtype=torch.float32)
        normed, _ = self._device.add_norm(fed[rows], residual[rows], self._norm, self._shape.eps)
        return self._head(normed)


class _Loader:
    """Builds layers from named tensors."""

    def __init__(
        self, shape: DecoderShape, source: WeightSource, device: Device, dtype: torch.dtype, adapters: AdapterBank
    ) -> None:
        self._adapters = adapters
        self._shape = shape
        self._source = source
        self._device = device
        self._dtype = dtype

    def embedding(self) -> LinearWeight:
        matrix = (self._shape.vocab_size, self._shape.hidden)
        return self._placed(self._source.linear("model.embed_tokens.weight", matrix))

    def _placed(self, weight: LinearWeight) -> LinearWeight:
        """On the device, for what takes rows of it."""
        return move(weight, self._device.torch_device)

    def head(self, embedding: LinearWeight, *, tied: bool) -> Linear:
        matrix = (self._shape.vocab_size, self._shape.hidden)
        weight = embedding if tied else self._placed(self._source.linear("lm_head.weight", matrix))
        product = self._device.linear(weight, None, self._dtype)
        is_exact = self._dtype == torch.float32 and isinstance(weight, Tensor)
        return product if is_exact else RefinedHead(product, weight)

    def norm(self, name: str) -> Tensor:
        return self._source.tensor(name, (self._shape.hidden,), self._dtype).to(self._device.torch_device)

    def layer(self, number: int) -> LayerParts:
        shape, prefix = self._shape, f"model.layers.{number}."
        width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        queries_keys_values = {"q_proj": width, "k_proj": kv_width, "v_proj": kv_width}
        return LayerParts(
            input_norm=self.norm(prefix + "input_layernorm.weight"),
            qkv=self._fused(prefix + "self_attn.", queries_keys_values, shape.hidden),
            qk_norm=self._qk_norm(prefix + "self_attn."),
            output=self._fused(prefix + "self_attn.", {"o_proj": shape.hidden}, width),
            post_norm=self.norm(prefix + "post_attention_layernorm.weight"),
            gate_up=self._fused(prefix + "mlp.", {"gate_proj": shape.inner, "up_proj": shape.inner}, shape.hidden),
            down=self._fused(prefix + "mlp.", {"down_proj": shape.hidden}, shape.inner),
            heads=shape.heads,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            eps=shape.eps,
            attention=shape.attention,
        )

    def _fused(self, prefix: str, parts: dict[str, int], inputs: int) -> Linear:
        """Projections of one input as one product; outputs in the order of ``parts`` (name -> outputs)."""
        weights: list[LinearWeight] = [
            self._source.linear(f"{prefix}{name}.weight", (outputs, inputs)) for name, outputs in parts.items()
        ]
        bias = None
        if any(f"{prefix}{name}.bias" in self._source for name in parts):
            biases = [self._source.tensor(f"{prefix}{name}.bias", (n,), self._dtype) for name, n in parts.items()]
            bias = torch.cat(biases)
        weight = weights[0] if len(weights) == 1 else concatenate(weights)
        base = self._device.linear(weight, bias, self._dtype)
        return self._adapters.adapt(base, {prefix + name: outputs for name, outputs in parts.items()}, inputs)

    def _qk_norm(self, prefix: str) -> Tensor | None:
        if f"{prefix}q_norm.weight" not in self._source:
            return None
        head_dim = (self._shape.head_dim,)
        query = self._source.tensor(f"{prefix}q_norm.weight", head_dim, self._dtype)
        key = self._source.tensor(f"{prefix}k_norm.weight", head_dim, self._dtype)
        both = torch.cat([query.expand(self._shape.heads, -1), key.expand(self._shape.kv_heads, -1)])
        return both.to(self._device.torch_device)
