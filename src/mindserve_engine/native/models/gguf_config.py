"""What a GGUF file's metadata says about a model and transformers' reading of it leaves out."""

from __future__ import annotations

from typing import Any, Final

from gguf import GGUFReader
from transformers import PretrainedConfig

from mindserve_engine.native.models.rope import rope_type

_SCALING_TYPES: Final = ("linear", "yarn")


def complete_config(config: PretrainedConfig, reader: GGUFReader) -> None:
    """Set the head size and the rope scaling where the file names them and the config still has its defaults."""
    architecture = str(reader.fields["general.architecture"].contents())

    def value(key: str) -> Any:
        field = reader.fields.get(f"{architecture}.{key}")
        return None if field is None else field.contents()

    head_dim = value("attention.key_length")
    if head_dim is not None:
        config.head_dim = int(head_dim)
    scaling = value("rope.scaling.type")
    if scaling in _SCALING_TYPES and rope_type(config) == "default":
        config.rope_parameters = {**config.rope_parameters, **_scaling(scaling, value("rope.scaling.factor"))}
        original = value("rope.scaling.original_context_length")
        if original is not None:
            config.rope_parameters["original_max_position_embeddings"] = int(original)


def _scaling(kind: str, factor: Any) -> dict[str, Any]:
    return {"rope_type": kind, "factor": float(factor or 1.0)}
