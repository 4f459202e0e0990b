"""A model's config from the metadata of its GGUF file."""

from __future__ import annotations

from typing import Any, Final

from gguf import GGUFReader
from transformers import PretrainedConfig

from mindserve_engine.native.models.rope import rope_type

_FAMILIES: Final = frozenset({"llama", "qwen2", "qwen3"})
"""Architectures (Mistral files call themselves llama) whose config is made here: transformers takes three seconds to
read a file's vocabulary for it, and its own config classes one more to import."""
_REQUIRED: Final = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "context_length": "max_position_embeddings",
}
_TOKEN_IDS: Final = {"bos": "bos_token_id", "eos": "eos_token_id", "padding": "pad_token_id"}
_DEFAULT_ROPE_THETA: Final = 10000.0
_SCALING_TYPES: Final = ("linear", "yarn")


class _Metadata:
    """The values of a file, by names with or without the prefix of its architecture."""

    def __init__(self, reader: GGUFReader) -> None:
        self._fields = reader.fields
        self.architecture = str(self.of_file("general.architecture"))

    def of_file(self, key: str) -> Any:
        field = self._fields.get(key)
        return None if field is None else field.contents()

    def of_model(self, key: str) -> Any:
        return self.of_file(f"{self.architecture}.{key}")


def read_config(reader: GGUFReader) -> PretrainedConfig | None:
    """The lean decoder's config for a file of the Llama and Qwen families; ``None`` for other files.

    Raises ``ValueError`` when the file does not name one of the model's sizes."""
    metadata = _Metadata(reader)
    if metadata.architecture not in _FAMILIES:
        return None
    sizes = {name: metadata.of_model(key) for key, name in _REQUIRED.items()}
    missing = [key for key, name in _REQUIRED.items() if sizes[name] is None]
    if missing:
        raise ValueError(f"the file's metadata has no '{metadata.architecture}.{missing[0]}'")
    vocab_size = metadata.of_model("vocab_size") or len(metadata.of_file("tokenizer.ggml.tokens") or ())
    if not vocab_size:
        raise ValueError("the file's metadata names no tokens")
    if metadata.architecture == "llama":
        sizes["head_dim"] = metadata.of_model("rope.dimension_count")
    return PretrainedConfig(
        model_type=metadata.architecture,
        hidden_act="silu",
        **sizes,
        num_key_value_heads=metadata.of_model("attention.head_count_kv") or sizes["num_attention_heads"],
        vocab_size=vocab_size,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": metadata.of_model("rope.freq_base") or _DEFAULT_ROPE_THETA,
        },
        tie_word_embeddings=all(tensor.name != "output.weight" for tensor in reader.tensors),
        **_token_ids(metadata),
    )


def _token_ids(metadata: _Metadata) -> dict[str, int]:
    ids = {name: metadata.of_file(f"tokenizer.ggml.{key}_token_id") for key, name in _TOKEN_IDS.items()}
    return {name: token for name, token in ids.items() if token is not None}


def complete_config(config: PretrainedConfig, reader: GGUFReader) -> None:
    """Set what transformers' reading leaves out: the head size and the rope scaling, where the file names them and the
    config still has its defaults."""
    metadata = _Metadata(reader)
    head_dim = metadata.of_model("attention.key_length")
    if head_dim is not None:
        config.head_dim = int(head_dim)
    scaling = metadata.of_model("rope.scaling.type")
    if scaling in _SCALING_TYPES and rope_type(config) == "default":
        factor = float(metadata.of_model("rope.scaling.factor") or 1.0)
        config.rope_parameters = {**config.rope_parameters, "rope_type": scaling, "factor": factor}
        original = metadata.of_model("rope.scaling.original_context_length")
        if original is not None:
            config.rope_parameters["original_max_position_embeddings"] = int(original)
