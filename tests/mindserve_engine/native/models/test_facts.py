"""What a model's files say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mindserve_engine.interface import EngineError
from mindserve_engine.native.models.facts import ModelFacts, read_facts
from tests import tiny_gguf, tiny_models


def facts(folder: Path) -> ModelFacts:
    return read_facts(folder, trust_remote_code=False)


def rewrite(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**content, **changes}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_models.build("llama", tmp_path)


def test_eos_of_config_generation_config_and_end_of_turn(folder: Path) -> None:
    rewrite(folder / "generation_config.json", eos_token_id=[256, 7])
    rewrite(folder / "config.json", eos_token_id=9)
    assert facts(folder).eos_token_ids == (256, 7, 9, tiny_models.IM_END)


def test_eos_outside_the_vocabulary_is_dropped(folder: Path) -> None:
    rewrite(folder / "generation_config.json", eos_token_id=[tiny_models.VOCAB_SIZE, 7, -1])
    assert facts(folder).eos_token_ids == (7, tiny_models.IM_END)


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [
        ({"top_k": 20}, {}, 20),
        ({"top_k": 20}, {"top_k": 30}, 20),
        ({}, {"top_k": 30}, 30),
        ({"top_k": None}, {"top_k": 30}, 30),
        ({"top_k": 0}, {"top_k": 30}, 0),
        ({"top_k": -1}, {}, 0),
        ({"top_k": True}, {}, None),
        ({}, {}, None),
    ],
)
def test_top_k_of_the_files(
    folder: Path, generation: dict[str, Any], config: dict[str, Any], expected: int | None
) -> None:
    """Reading C25; transformers' own default of 50 is nobody's wish."""
    (folder / "generation_config.json").write_text(json.dumps(generation))
    rewrite(folder / "config.json", **config)
    assert facts(folder).default_top_k == expected


def test_no_generation_config(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    assert facts(folder).default_top_k is None
    assert facts(folder).eos_token_ids == (tiny_models.IM_END,)


def test_limit_of_positions(folder: Path) -> None:
    assert facts(folder).max_positions == 512


def test_longrope_is_limited_to_one_set_of_frequencies(folder: Path) -> None:
    factors = [1.0] * 8
    rope = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": factors,
        "long_factor": factors,
        "original_max_position_embeddings": 128,
    }
    rewrite(folder / "config.json", rope_parameters=rope)
    assert facts(folder).max_positions == 128


def test_gguf(tmp_path: Path) -> None:
    read = facts(tiny_gguf.write("llama", tmp_path))
    assert read.is_gguf
    assert read.eos_token_ids == (256, tiny_models.IM_END)
    assert read.default_top_k is None
    assert read.max_positions == 512
    assert read.config.vocab_size == tiny_models.VOCAB_SIZE


@pytest.mark.parametrize("file", ["config.json", "generation_config.json", "tokenizer.json"])
def test_broken_json_is_one_clear_line(folder: Path, file: str) -> None:
    (folder / file).write_text("{ not json")
    with pytest.raises(EngineError) as caught:
        facts(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_model(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="nowhere: no such model folder or file"):
        facts(tmp_path / "nowhere")
    with pytest.raises(EngineError, match=r"no config\.json in the model folder"):
        facts(tmp_path)


def test_unknown_architecture_is_one_clear_line(folder: Path) -> None:
    rewrite(folder / "config.json", model_type="never-heard-of-it")
    with pytest.raises(EngineError, match="the model's config cannot be used") as caught:
        facts(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["linear", "yarn"])
def test_gguf_head_size_and_rope_scaling(tmp_path: Path, kind: str) -> None:
    extra = {"rope.scaling.type": kind, "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 128}
    config = facts(tiny_gguf.write("qwen3", tmp_path, metadata=extra)).config
    assert config.head_dim == 32
    assert config.rope_parameters["rope_type"] == kind
    assert config.rope_parameters["factor"] == 4.0
    assert config.rope_parameters["original_max_position_embeddings"] == 128
