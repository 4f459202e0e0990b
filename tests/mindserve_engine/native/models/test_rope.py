"""Rotary tables against transformers' own rotary embeddings."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from mindserve_engine.interface import EngineError
from mindserve_engine.native.models.rope import RotaryTable
from tests import tiny_models

CPU = torch.device("cpu")


def config_of(name: str) -> Any:
    model_type, changes = tiny_models.LEAN[name]
    return AutoConfig.for_model(model_type, **{"hidden_size": 64, "num_attention_heads": 4, **changes})


@pytest.mark.parametrize("name", [name for name in tiny_models.LEAN if name.startswith("llama") or "yarn" in name])
def test_equals_transformers(name: str) -> None:
    config = config_of(name)
    head_dim = getattr(config, "head_dim", None) or 16
    positions = torch.tensor([0, 1, 17, 250, 511])
    expected = LlamaRotaryEmbedding(config)(torch.zeros(1), positions[None])
    table = RotaryTable(config, head_dim=head_dim, max_positions=512, dtype=torch.float32, device=CPU)
    for actual, theirs in zip(table.at(positions), expected, strict=True):
        torch.testing.assert_close(actual, theirs[0])


def test_divisors_slow_the_rotation_down() -> None:
    plain = RotaryTable(config_of("llama"), head_dim=16, max_positions=64, dtype=torch.float32, device=CPU)
    slowed = RotaryTable(
        config_of("llama"),
        head_dim=16,
        max_positions=64,
        dtype=torch.float32,
        device=CPU,
        divisors=torch.full((8,), 4.0),
    )
    torch.testing.assert_close(slowed.at(torch.tensor([40]))[0], plain.at(torch.tensor([10]))[0])


def test_unknown_variant_is_refused() -> None:
    config = config_of("llama")
    config.rope_parameters = {"rope_type": "spiral", "rope_theta": 1e4}
    with pytest.raises(EngineError, match="rope_type 'spiral'"):
        RotaryTable(config, head_dim=16, max_positions=8, dtype=torch.float32, device=CPU)
