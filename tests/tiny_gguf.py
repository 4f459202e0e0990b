"""Small GGUF files made from the tiny models, the way llama.cpp's converter lays them out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFValueType
from transformers import AutoModelForCausalLM

from tests import tiny_models

MIXED_K: Final = {"v_proj": Kind.Q6_K, "down_proj": Kind.Q6_K, "embed_tokens": Kind.Q6_K, "lm_head": Kind.Q6_K}
"""Where files called Q4_K_M have six bits."""
K_SIZES: Final = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2}
"""K-quantised rows take multiples of 256 columns."""
_DEVIATION: Final = 0.15
"""Of the weights that random blocks stand for."""
_K_FACTORS: Final = {
    Kind.Q4_K: (slice(0, 4), (_DEVIATION / 258, 7.5 * _DEVIATION / 258)),
    Kind.Q6_K: (slice(208, 210), (_DEVIATION / 1365,)),
}
"""Where blocks keep their float16 factors, and what those must be: all other bytes may be random."""
_VALUE_TYPES = {str: GGUFValueType.STRING, float: GGUFValueType.FLOAT32, int: GGUFValueType.UINT32}


def write(
    name: str,
    folder: Path,
    *,
    linear: Kind = Kind.Q4_1,
    embedding: Kind = Kind.Q8_0,
    metadata: dict[str, Any] | None = None,
    rope_divisors: np.ndarray | None = None,
    parts: Mapping[str, Kind] = MappingProxyType({}),
    **sizes: int,
) -> Path:
    """A GGUF file of the tiny model ``name`` (Llama and Qwen families) whose matrices are quantised as asked; those of
    ``parts`` otherwise. K-quantised matrices are random and want ``K_SIZES``."""
    source = tiny_models.build(name, folder / "source", **sizes)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    architecture = model.config.model_type
    path = folder / f"{name}.gguf"
    writer = gguf.GGUFWriter(path, architecture)
    _write_config(writer, model.config)
    for key, value in (metadata or {}).items():
        writer.add_key_value(f"{architecture}.{key}", value, _VALUE_TYPES[type(value)])
    if rope_divisors is not None:
        writer.add_tensor("rope_freqs.weight", rope_divisors.astype(np.float32))
    names = gguf.get_tensor_name_map(_architecture(architecture), model.config.num_hidden_layers)
    for key, tensor in model.state_dict().items():
        if key == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        stem, _, suffix = key.rpartition(".")
        values = _in_file_order(architecture, key, tensor, model.config)
        wanted = parts.get(stem.split(".")[-1], embedding if "embed" in key or "lm_head" in key else linear)
        kind = Kind.F32 if values.dim() == 1 else wanted
        data = _k_blocks(kind, *values.shape) if kind in _K_FACTORS else gguf.quants.quantize(values.numpy(), kind)
        writer.add_tensor(f"{names.get_name(stem)}.{suffix}", data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_config(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    if getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    writer.add_tokenizer_model("gpt2")
    tokens = [f"<{number}>" for number in range(config.vocab_size)]
    tokens[tiny_models.IM_END] = "<|im_end|>"
    writer.add_token_list(tokens)
    writer.add_eos_token_id(256)


def _in_file_order(architecture: str, key: str, tensor: torch.Tensor, config: Any) -> torch.Tensor:
    """Llama files keep the two halves of each query and key head interleaved."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    part = key.split(".")[-2]
    if architecture != "llama" or part not in heads:
        return tensor.contiguous()
    halves = tensor.reshape(heads[part], 2, -1, *tensor.shape[1:])
    return halves.transpose(1, 2).reshape(tensor.shape).contiguous()


def _architecture(name: str) -> gguf.MODEL_ARCH:
    return next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == name)


def _k_blocks(kind: Kind, num_rows: int, num_columns: int) -> np.ndarray:
    """Random weights of deviation 0.15 and mean 0; gguf has no quantiser for these kinds. Shape [rows, bytes]."""
    where, factors = _K_FACTORS[kind]
    size, num_bytes = gguf.GGML_QUANT_SIZES[kind]
    random = np.random.default_rng(num_rows * num_columns)
    blocks = random.integers(0, 256, (num_rows * num_columns // size, num_bytes), dtype=np.uint8)
    blocks[:, where] = np.asarray(factors, dtype=np.float16).view(np.uint8)
    return blocks.reshape(num_rows, -1)


def random_blocks(kind: Kind, *, num_rows: int, num_columns: int, seed: int = 0) -> np.ndarray:
    """Any bytes make a block; only the float16 factors must be finite. Shape [rows, bytes]."""
    size, num_bytes = gguf.GGML_QUANT_SIZES[kind]
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 256, (num_rows * num_columns // size, num_bytes), dtype=np.uint8)
    factors = random.normal(size=(len(blocks), 2)).astype(np.float16).view(np.uint8)
    num_factor_bytes = 2 if kind in (Kind.Q4_0, Kind.Q8_0) else 4
    blocks[:, :num_factor_bytes] = factors[:, :num_factor_bytes]
    return blocks.reshape(num_rows, -1)
