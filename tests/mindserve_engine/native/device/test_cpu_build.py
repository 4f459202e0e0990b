"""Compiling the CPU kernels: once for a machine, and never in the way of serving."""

from __future__ import annotations

from pathlib import Path

import pytest

from mindserve_engine.native.device import cpu_build
from mindserve_engine.native.device.cpu import CpuDevice
from mindserve_engine.native.device.cpu_build import load_library
from mindserve_engine.native.device.cpu_compiled import CompiledCpuDevice
from mindserve_engine.native.device.registry import create_device
from mindserve_engine.options import EngineOptions

_LINKS_RUBBISH = """
case "$*" in --version | *" -c "*) exit ;; esac
for last; do :; done
echo rubbish > "$last"
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled without optimising, which takes most of the time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cpu_build, "_FLAGS", tuple("-O0" if flag == "-O3" else flag for flag in cpu_build._FLAGS))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The compilers that were called."""
    called: list[str] = []
    compile_source = cpu_build._compile

    def noting(compiler: str, folder: Path) -> Path:
        called.append(compiler)
        return compile_source(compiler, folder)

    monkeypatch.setattr(cpu_build, "_compile", noting)
    return called


def a_compiler(folder: Path, script: str) -> str:
    path = folder / "my-c++"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def created() -> CpuDevice:
    device = create_device(EngineOptions(model_path=""))
    assert isinstance(device, CpuDevice)
    return device


def test_it_is_compiled_once(tmp_path: Path, compiled: list[str]) -> None:
    assert isinstance(created(), CompiledCpuDevice)
    assert isinstance(created(), CompiledCpuDevice)
    assert len(compiled) == 1
    (library,) = (tmp_path / "cache" / "mindserve" / "kernels").iterdir()
    assert library.suffix == ".so"


def test_a_damaged_library_is_made_anew(tmp_path: Path, compiled: list[str]) -> None:
    load_library()
    (library,) = (tmp_path / "cache" / "mindserve" / "kernels").iterdir()
    library.unlink()  # not written over: it is mapped
    library.write_bytes(b"rubbish")
    assert isinstance(created(), CompiledCpuDevice)
    assert isinstance(created(), CompiledCpuDevice)
    assert len(compiled) == 2


def test_another_processor_gets_another_library(compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    load_library()
    monkeypatch.setattr(cpu_build, "_processor", lambda: "another")
    load_library()
    assert len(compiled) == 2


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo 'kernels.cpp:1: error: not today' >&2; exit 1", "error: not today"),
        ("exit 0", "kernels.so"),
        (_LINKS_RUBBISH, "file too short"),
    ],
    ids=["fails", "writes nothing", "writes rubbish"],
)
def test_a_compiler_that_does_not_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, script: str, told: str
) -> None:
    monkeypatch.setenv("CXX", a_compiler(tmp_path, script))
    assert not isinstance(created(), CompiledCpuDevice)
    (line,) = caplog.messages
    assert "torch's own operators take their place" in line
    assert told in line


@pytest.mark.parametrize("named", ["", "no-such-compiler"])
def test_no_compiler(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, named: str) -> None:
    monkeypatch.setenv("CXX", named)
    assert not isinstance(created(), CompiledCpuDevice)
    (line,) = caplog.messages
    assert "no C++ compiler was found" in line


def test_a_cache_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: list[str]) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert isinstance(created(), CompiledCpuDevice)
    assert isinstance(created(), CompiledCpuDevice)
    assert len(compiled) == 2
