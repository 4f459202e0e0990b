"""The npu device, on machines that have none: emulated in a process of its own, and told apart from what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiny_models

ROOT = Path(__file__).parents[4]
CHECKS = ROOT / "tests" / "npu_emulation" / "checks"


@pytest.mark.timeout(1800)
def test_on_the_emulated_device() -> None:
    """Each check is a test of its own there; what it says stands in this one's failure."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.npu_emulation.plugin", "--timeout", "900"]
    command += ["-o", "python_files=check_*.py", "-o", "python_functions=check_*", str(CHECKS)]
    environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-5000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


def a_broken_package(folder: Path) -> Path:
    """torch_npu as pip installs it where there is no CANN: torch finds its entry point, and importing it fails."""
    (folder / "torch_npu").mkdir(parents=True)
    (folder / "torch_npu" / "__init__.py").write_text(
        "raise ImportError('libhccl.so: cannot open shared object file')\ndef _autoload():\n    pass\n"
    )
    metadata = folder / "torch_npu-2.13.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-npu\nVersion: 2.13.0\n")
    (metadata / "entry_points.txt").write_text("[torch.backends]\ntorch_npu = torch_npu:_autoload\n")
    return folder


def said(script: str, *places: Path) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name != "TORCH_DEVICE_BACKEND_AUTOLOAD"}
    environ["PYTHONPATH"] = ":".join(map(str, (*places, ROOT / "src", ROOT)))
    return subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=False)


REFUSED = """
from pathlib import Path
from mindserve_engine.interface import EngineError
from mindserve_engine.native.device.registry import create_device
from mindserve_engine.options import EngineOptions
try:
    create_device(EngineOptions(model_path=Path(), device="npu"))
except EngineError as error:
    print(error)
"""
SERVES = """
from pathlib import Path
from mindserve_engine.native.device.registry import create_device
from mindserve_engine.options import EngineOptions
import torch
print(create_device(EngineOptions(model_path=Path(), num_threads=1)).name, torch.ones(2).sum().item())
"""


def test_torch_alone_dies_of_a_broken_package_and_the_engine_does_not(tmp_path: Path) -> None:
    broken = a_broken_package(tmp_path)
    alone = said("import torch", broken)
    assert alone.returncode != 0
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD" in alone.stderr, "torch has changed: drop our setting?"
    with_us = said(SERVES, broken)
    assert with_us.stdout == "cpu 2.0\n", with_us.stderr


GENERIC = """
import sys
from pathlib import Path
from mindserve_engine.native.runner import load_runner
from mindserve_engine.options import EngineOptions
options = EngineOptions(model_path=Path(sys.argv[1]), dtype="float32", kv_memory_gb=0.1)
print(load_runner(options, lambda what, share: None).info.model_type)
"""


def test_a_broken_package_does_not_keep_transformers_models_from_the_cpu(tmp_path: Path) -> None:
    model = tiny_models.build("gemma2", tmp_path / "model")
    script = GENERIC.replace("sys.argv[1]", repr(str(model)))
    assert said(script, a_broken_package(tmp_path / "packages")).stdout == "gemma2\n"


def test_what_is_missing_is_told_apart(tmp_path: Path) -> None:
    missing = said(REFUSED)
    assert "the package torch_npu is not installed: pip install 'mindserve[cpu,npu]'" in missing.stdout, missing.stderr
    no_cann = said(REFUSED, a_broken_package(tmp_path))
    assert "CANN is not on the library path" in no_cann.stdout, no_cann.stderr
    assert "set_env.sh" in no_cann.stdout


def test_an_unknown_device_is_refused_by_name() -> None:
    done = said(REFUSED.replace('"npu"', '"tpu"'))
    assert done.stdout == "device: 'tpu' is none of cpu, cuda, npu\n", done.stderr
