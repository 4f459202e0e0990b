"""What adapters' configs say before vLLM loads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mindserve_engine.interface import EngineError
from mindserve_engine.vllm.adapters import largest_rank


def write(folder: Path, **config: Any) -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 4, **config}))
    (folder / "adapter_model.safetensors").touch()
    return folder


def test_room_for_the_largest(tmp_path: Path) -> None:
    assert largest_rank({}) == 0
    assert largest_rank({"a": write(tmp_path / "a"), "b": write(tmp_path / "b", r=17)}) == 32


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern"),
        ({"alpha_pattern": {"q_proj": 2}}, "alpha_pattern"),
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "bias"),
        ({"r": 0}, "rank is 0"),
        ({"r": 513}, "rank is 513"),
        ({"r": None}, "rank is None"),
    ],
)
def test_what_would_not_be_applied_exactly(tmp_path: Path, config: dict[str, Any], reason: str) -> None:
    with pytest.raises(EngineError, match=reason) as refused:
        largest_rank({"mine": write(tmp_path / "mine", **config)})
    assert "mine" in str(refused.value)


@pytest.mark.parametrize("missing", ["adapter_config.json", "adapter_model.safetensors"])
def test_files_that_are_not_there(tmp_path: Path, missing: str) -> None:
    folder = write(tmp_path / "mine")
    (folder / missing).unlink()
    with pytest.raises(EngineError, match=missing):
        largest_rank({"mine": folder})
