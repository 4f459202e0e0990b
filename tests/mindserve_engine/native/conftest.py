"""Makes the fakes importable here, and in the engine processes that tests start."""

import os
import sys
from pathlib import Path

import pytest

from mindserve_engine.native import supervisor

FAKES = str(Path(__file__).parent / "fakes")
sys.path.insert(0, FAKES)


@pytest.fixture(autouse=True)
def fakes_in_engine_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", FAKES, prepend=os.pathsep)


@pytest.fixture
def fast_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "FIRST_BACKOFF_S", 0.01)
