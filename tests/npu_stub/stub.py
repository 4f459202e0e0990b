"""A stub of CANN: libraries with the names and functions that torch_npu looks for, which do nothing and see no device.

Which those are is read from torch_npu's own libraries, so the stub follows a new version by itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_MAIN: Final = "libascendcl.so"
_COUNT: Final = "aclrtGetDeviceCount"
_LIBRARY: Final = re.compile(r"^\s*(\S+) => (not found|/\S+)", re.MULTILINE)


def package_folder(name: str) -> Path:
    """Found without importing it."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{name} is not installed for {sys.executable}")
    return Path(spec.origin).parent


def build(folder: Path) -> dict[str, str]:
    """Write the libraries into ``folder``; returns the environment in which they are found."""
    ours, torchs = package_folder("torch_npu"), package_folder("torch") / "lib"
    environ = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    environ["LD_LIBRARY_PATH"] = f"{folder}:{ours / 'lib'}:{torchs}"
    libraries = [*(ours / "lib").glob("*.so"), *ours.glob("_C*.so")]
    wanted: set[str] = set()
    missing: set[str] = set()
    there = {str(Path(sys.executable).resolve()), *map(str, libraries)}
    for library in libraries:
        if library.name == "libop_plugin_atb.so":  # loaded when one of its operators is called, which we never do
            continue
        found = dict(_LIBRARY.findall(_said(["ldd", str(library)], environ)))
        missing |= {name for name, place in found.items() if place == "not found"}
        there |= {place for place in found.values() if place != "not found"}
        wanted |= _symbols(library, "--undefined-only", {"U"})
    known: set[str] = set()
    for place in there:
        known |= _symbols(Path(place), "--defined-only", None)
    _compile(folder / _MAIN, sorted(wanted - known - {_COUNT}))
    for name in missing - {_MAIN}:
        _compile(folder / name, [])
    return environ


def _symbols(library: Path, which: str, kinds: set[str] | None) -> set[str]:
    """Names without their versions; of weak ones that may stay undefined only those that are asked for."""
    lines = (line.split() for line in _said(["nm", "-D", which, str(library)], None).splitlines())
    return {parts[-1].partition("@")[0] for parts in lines if len(parts) >= 2 and (kinds is None or parts[-2] in kinds)}


def _said(command: list[str], environ: dict[str, str] | None) -> str:
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout


def _compile(target: Path, functions: list[str]) -> None:
    lines = [f"long {name}(void) {{ return 0; }}" for name in functions]
    if target.name == _MAIN:
        lines.append(f"long {_COUNT}(unsigned *count) {{ *count = 0; return 0; }}")
    source = target.with_suffix(".c")
    source.write_text("\n".join(lines) + "\n")
    subprocess.run(["gcc", "-w", "-shared", "-fPIC", "-fno-builtin", "-o", target, source], check=True)
