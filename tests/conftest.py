"""What tests in several folders need."""

from __future__ import annotations

import os

# Before torch is loaded: threads of a test that shares the machine with others would wait by turning in circles. The
# server gives the same to its engine.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.default_model import default_model_file

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The default model's GGUF file."""
    return default_model_file()


TOGETHER: Final = "tests/engine/contract/"
"""Files that share engines which the last of them ends: one process runs them all, in order."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    """Where several processes share the suite, a file is the least that one of them takes: what a file's tests share
    is made once. Not known where vllm is installed."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return TOGETHER if nodeid.startswith(TOGETHER) else nodeid.split("::", 1)[0]

    return ByFile(config, log)
