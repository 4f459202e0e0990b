"""Configs made from GGUF metadata are those that transformers makes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gguf
import pytest
from transformers import AutoConfig

from mindserve_engine.interface import EngineError
from mindserve_engine.native.models.decoder import DecoderShape, is_lean
from mindserve_engine.native.models.facts import read_facts
from mindserve_engine.native.models.gguf_config import read_config
from mindserve_engine.native.weights.gguf_file import open_gguf
from tests import tiny_gguf, tiny_models

SIZES: dict[str, Any] = {
    "block_count": 2,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "context_length": 128,
}

NOT_COMPARED = {"head_dim", "model_type", "transformers_version", "_name_or_path"}
"""Compared otherwise, or nothing of the model."""


def header(path: Path, architecture: str, values: dict[str, Any]) -> Path:
    """A file without tensors."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in values.items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)]
        add(key if key.startswith("tokenizer.") else f"{architecture}.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def assert_as_transformers_reads_it(path: Path) -> None:
    ours = read_config(open_gguf(path))
    theirs = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    assert ours is not None
    assert ours.model_type == theirs.model_type
    made = {key: value for key, value in ours.to_dict().items() if key not in NOT_COMPARED}
    expected = theirs.to_dict()
    assert made == {key: expected[key] for key in made}
    assert is_lean(ours)
    assert is_lean(theirs)
    if theirs.model_type != "qwen3":  # where transformers leaves the head size at that of its default model
        assert DecoderShape.of(ours) == DecoderShape.of(theirs)


@pytest.mark.parametrize("name", ["llama", "llama-untied-biased", "qwen2", "qwen3"])
def test_tiny_models(tmp_path: Path, name: str) -> None:
    path = tiny_gguf.write(name, tmp_path)
    assert_as_transformers_reads_it(path)
    config = read_facts(path, trust_remote_code=False).config
    made_from = AutoConfig.from_pretrained(path.parent / "source")
    shape = DecoderShape.of(made_from)
    assert DecoderShape.of(config) == dataclasses.replace(shape, eps=pytest.approx(shape.eps))  # float32 in the file
    assert config.rope_parameters == made_from.rope_parameters
    assert config.tie_word_embeddings == made_from.tie_word_embeddings


def test_default_model(default_model: Path) -> None:
    assert_as_transformers_reads_it(default_model)


def test_what_a_file_may_leave_out(tmp_path: Path) -> None:
    config = read_config(open_gguf(header(tmp_path / "x.gguf", "qwen2", {**SIZES, "vocab_size": 300})))
    assert config is not None
    assert config.num_key_value_heads == 4
    assert config.rope_parameters == {"rope_type": "default", "rope_theta": 10000.0}


@pytest.mark.parametrize("key", SIZES)
def test_a_missing_size_is_named(tmp_path: Path, key: str) -> None:
    path = header(tmp_path / "x.gguf", "llama", {name: value for name, value in SIZES.items() if name != key})
    with pytest.raises(EngineError, match=rf"x\.gguf: .*the file's metadata has no 'llama\.{key}'") as caught:
        read_facts(path, trust_remote_code=False)
    assert "\n" not in str(caught.value)


def test_a_missing_vocabulary_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="names no tokens"):
        read_facts(header(tmp_path / "x.gguf", "llama", SIZES), trust_remote_code=False)


@pytest.mark.parametrize("nonsense", [{"attention.key_length": "long"}, {"tokenizer.ggml.eos_token_id": "the last"}])
def test_nonsense_is_one_clear_line(tmp_path: Path, nonsense: dict[str, str]) -> None:
    path = header(tmp_path / "x.gguf", "llama", {**SIZES, "vocab_size": 300, **nonsense})
    with pytest.raises(EngineError, match=r"x\.gguf: the model's config cannot be used") as caught:
        read_facts(path, trust_remote_code=False)
    assert "\n" not in str(caught.value)


def test_other_families_are_left_to_transformers(tmp_path: Path) -> None:
    path = tiny_gguf.write("gemma2", tmp_path)
    assert read_config(open_gguf(path)) is None
    assert read_facts(path, trust_remote_code=False).config.vocab_size == tiny_models.VOCAB_SIZE
