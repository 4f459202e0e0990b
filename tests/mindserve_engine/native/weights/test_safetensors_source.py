"""Weights of transformers folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mindserve_engine.interface import EngineError
from mindserve_engine.native.weights.safetensors_source import SafetensorsSource
from tests import tiny_models

NAME = "model.layers.0.mlp.down_proj.weight"
SHAPE = (64, 96)


def test_single_file(tmp_path: Path) -> None:
    folder = tiny_models.build("qwen2", tmp_path)
    source = SafetensorsSource(folder, torch.float32)
    assert torch.equal(source.tensor(NAME, SHAPE), load_file(folder / "model.safetensors")[NAME])
    assert source.weights_name == "float32"
    assert "model.layers.0.self_attn.q_proj.bias" in source
    assert "model.layers.0.self_attn.o_proj.bias" not in source


def test_shards_hold_the_same(tmp_path: Path) -> None:
    whole = SafetensorsSource(tiny_models.build("qwen2", tmp_path / "whole"), torch.float32)
    folder = tiny_models.build("qwen2", tmp_path / "shards", shard_bytes=60_000)
    assert len(list(folder.glob("*.safetensors"))) > 2
    shards = SafetensorsSource(folder, torch.float32)
    for layer in range(3):
        name = f"model.layers.{layer}.mlp.down_proj.weight"
        assert torch.equal(shards.linear(name, SHAPE), whole.linear(name, SHAPE))


def test_tensors_come_in_the_dtype_asked_for(tmp_path: Path) -> None:
    source = SafetensorsSource(tiny_models.build("llama", tmp_path), torch.bfloat16)
    assert source.tensor(NAME, SHAPE).dtype == torch.bfloat16


def test_missing_shard_is_named(tmp_path: Path) -> None:
    folder = tiny_models.build("llama", tmp_path, shard_bytes=60_000)
    lost = sorted(folder.glob("*.safetensors"))[1]
    lost.unlink()
    with pytest.raises(EngineError, match=f"{lost.name}: the index names this file, but it does not exist"):
        SafetensorsSource(folder, torch.float32)


def test_truncated_file_is_named(tmp_path: Path) -> None:
    folder = tiny_models.build("llama", tmp_path)
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(EngineError, match=r"model\.safetensors: not a readable safetensors file") as caught:
        SafetensorsSource(folder, torch.float32)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("index", ["not json", "{}", "[]", json.dumps({"weight_map": 3})])
def test_broken_index_is_named(tmp_path: Path, index: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(EngineError, match=r"index\.json: not a safetensors index"):
        SafetensorsSource(tmp_path, torch.float32)


def test_no_weights_at_all(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="weights must be in safetensors format"):
        SafetensorsSource(tmp_path, torch.float32)


def test_wrong_shape_and_missing_tensor_are_named(tmp_path: Path) -> None:
    source = SafetensorsSource(tiny_models.build("llama", tmp_path), torch.float32)
    with pytest.raises(
        EngineError, match=r"down_proj\.weight' has shape \[64, 96\], the model's config needs \[1, 2\]"
    ):
        source.tensor(NAME, (1, 2))
    with pytest.raises(EngineError, match="no tensor 'nothing'"):
        source.tensor("nothing", (1,))
