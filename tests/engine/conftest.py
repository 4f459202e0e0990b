"""Models for the engine's equality tests: ours and transformers', from the same files."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from mindserve_engine.native.runner import LoadedModel
from tests import tiny_models
from tests.engine import drive


@dataclass(frozen=True, slots=True)
class Pair:
    """One model twice."""

    path: Path
    ours: LoadedModel
    theirs: Any


@pytest.fixture(scope="session", autouse=True)
def _quiet() -> None:
    transformers_logging.disable_progress_bar()


@pytest.fixture(scope="session")
def tiny_pair(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    """By the names of ``tests.tiny_models``."""
    made: dict[str, Pair] = {}

    def pair(name: str) -> Pair:
        if name not in made:
            path = tiny_models.build(name, tmp_path_factory.mktemp(name))
            theirs = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
            made[name] = Pair(path, drive.load(path, block_size=16), theirs)
        return made[name]

    return pair


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The default model's GGUF file: named by ``MINDSERVE_TEST_MODEL``, or in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    named = os.environ.get("MINDSERVE_TEST_MODEL")
    path = Path(named) if named else cache / "mindserve" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    if not path.is_file():
        pytest.skip(f"the default model is not at {path}: run `mindserve fetch`")
    return path


@pytest.fixture(scope="session")
def default_pair(default_model: Path) -> Pair:
    """The default model, dequantised to float32 on both sides."""
    theirs = AutoModelForCausalLM.from_pretrained(
        default_model.parent, gguf_file=default_model.name, dtype=torch.float32
    )
    return Pair(default_model, drive.load(default_model, kv_memory_gb=0.5, block_size=32, num_threads=None), theirs)
