"""Naming an engine loads nothing of it; asking for one loads its own module alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mindserve_engine.registry import engine_names

_PROGRAM = """
import sys
from pathlib import Path
from mindserve_engine.options import EngineOptions
from mindserve_engine.registry import create_engine, engine_names
assert set(engine_names()) == {"native", "scripted", "vllm"}
try:
    create_engine(sys.argv[1], EngineOptions(model_path=Path("nowhere")))
except Exception:
    assert sys.argv[1] == "vllm"  # it may not be installed
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "vllm", "transformers"}))
"""


@pytest.mark.parametrize("name", engine_names())
def test_no_engine_loads_its_libraries_before_it_starts(name: str) -> None:
    command = [sys.executable, "-c", _PROGRAM, name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == []
