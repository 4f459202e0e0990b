"""Adapters on disk: what is applied exactly is read, everything else is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from mindserve_engine.interface import EngineError
from mindserve_engine.native.lora.adapter import read_adapter
from tests import tiny_models
from tests.engine import drive

LAYER = "base_model.model.model.layers.0.self_attn.q_proj"
Write = Callable[..., Path]


def pair(rank: int = 2, inputs: int = 8, outputs: int = 4, layer: str = LAYER) -> dict[str, Tensor]:
    return {f"{layer}.lora_A.weight": torch.ones(rank, inputs), f"{layer}.lora_B.weight": torch.ones(outputs, rank)}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_adapter(tensors: dict[str, Tensor] | None = None, **config: Any) -> Path:
        settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 6, "target_modules": ["q_proj"], **config}
        (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
        save_file(pair() if tensors is None else tensors, tmp_path / "adapter_model.safetensors")
        return tmp_path

    return write_adapter


@pytest.mark.parametrize(
    ("config", "scale"),
    [
        ({}, 3.0),
        ({"use_rslora": True}, 6 / 2**0.5),
        ({"alpha_pattern": {"q_proj": 1}}, 0.5),
        ({"alpha_pattern": {"k_proj": 1}}, 3.0),
        ({"lora_dropout": 0.5}, 3.0),
    ],
)
def test_scale(write: Write, config: dict[str, Any], scale: float) -> None:
    adapter = read_adapter("a", write(**config))
    (found,) = adapter.pairs.values()
    assert list(adapter.pairs) == ["model.layers.0.self_attn.q_proj"]
    torch.testing.assert_close(found.up, torch.full((4, 2), scale))
    torch.testing.assert_close(found.down, torch.ones(2, 8))


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"use_dora": True}, "it uses DoRA"),
        ({"bias": "all"}, "biases"),
        ({"lora_bias": True}, "lora_bias"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"peft_type": "IA3", "r": None}, "it "),
        ({"peft_type": "NOTHING"}, "it cannot be read"),
    ],
)
def test_what_is_not_applied_is_refused(write: Write, config: dict[str, Any], reason: str) -> None:
    with pytest.raises(EngineError, match=f"LoRA adapter 'a' .*{reason}") as refused:
        read_adapter("a", write(**config))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({}, "holds no weights"),
        ({f"{LAYER}.lora_A.weight": torch.ones(2, 8)}, "q_proj has factors that are missing or do not fit"),
        (pair(rank=2) | {f"{LAYER}.lora_B.weight": torch.ones(4, 3)}, "do not fit each other"),
        ({f"{LAYER}.lora_embedding_A": torch.ones(2, 8)}, "belongs to no linear layer"),
        (pair() | {f"{LAYER}.lora_A.weight": torch.full((2, 8), torch.nan)}, "NaN"),
        (pair() | {f"{LAYER}.lora_B.weight": torch.ones(4, 2, dtype=torch.int8)}, r"torch\.int8, which are no floats"),
        (pair(rank=3), "q_proj has the rank 3, the config says 2"),
    ],
)
def test_broken_weights_are_refused(write: Write, tensors: dict[str, Tensor], reason: str) -> None:
    with pytest.raises(EngineError, match=f"LoRA adapter 'a' .*{reason}"):
        read_adapter("a", write(tensors))


@pytest.mark.parametrize(
    "config",
    [
        {"r": 0},
        {"lora_alpha": "6"},
        {"lora_alpha": None},
        {"alpha_pattern": None},
        {"alpha_pattern": {"(": 1}},
        {"rank_pattern": [2]},
    ],
)
def test_settings_that_give_no_scale_are_refused(write: Write, config: dict[str, Any]) -> None:
    with pytest.raises(EngineError, match=r"LoRA adapter 'a' .*(q_proj|cannot be read)") as refused:
        read_adapter("a", write(pair(rank=config.get("r", 2)), **config))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_small_floats_are_read_as_they_are(write: Write, dtype: torch.dtype) -> None:
    (found,) = read_adapter("a", write({key: tensor.to(dtype) for key, tensor in pair().items()})).pairs.values()
    torch.testing.assert_close(found.up, torch.full((4, 2), 3.0))


def test_missing_and_truncated_files_are_refused(write: Write, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"there is no adapter_config\.json"):
        read_adapter("a", tmp_path / "nowhere")
    folder = write()
    weights = folder / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:40])
    with pytest.raises(EngineError, match="it cannot be read"):
        read_adapter("a", folder)
    weights.unlink()
    with pytest.raises(EngineError, match=r"there is no adapter_model\.safetensors"):
        read_adapter("a", folder)


@pytest.mark.parametrize("name", ["llama", "gemma2"])
@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        ("model.layers.9.self_attn.q_proj", "no linear layer of this model"),
        ("model.norm", "no linear layer of this model"),
        ("lm_head", "no linear layer of this model"),  # the head sees rows of its own
        ("model.layers.0.self_attn.q_proj", "has the shape"),
    ],
)
def test_adapters_of_other_models_are_refused(
    write: Write, tmp_path_factory: pytest.TempPathFactory, name: str, layer: str, reason: str
) -> None:
    model = tiny_models.build(name, tmp_path_factory.mktemp(name))
    folder = write(pair(layer=f"base_model.model.{layer}"))
    with pytest.raises(EngineError, match=f"LoRA adapter 'a' .*{reason}"):
        drive.load(model, block_size=16, adapters={"a": folder})
