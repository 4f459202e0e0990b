"""Models for the engine's equality tests: ours and transformers', from the same files."""

from __future__ import annotations

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
from tests.engine.media import MediaPair, make_pair


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
def default_pair(default_model: Path) -> Pair:
    """The default model, dequantised to float32 on both sides."""
    theirs = AutoModelForCausalLM.from_pretrained(
        default_model.parent, gguf_file=default_model.name, dtype=torch.float32
    )
    return Pair(default_model, drive.load(default_model, kv_memory_gb=0.5, block_size=32, num_threads=None), theirs)


@pytest.fixture(scope="session")
def media_pair(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], MediaPair]:
    """By the names of ``tests.tiny_media_models``."""
    made: dict[str, MediaPair] = {}

    def pair(name: str) -> MediaPair:
        if name not in made:
            made[name] = make_pair(name, tmp_path_factory.mktemp(name))
        return made[name]

    return pair
