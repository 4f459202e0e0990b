"""The C++ files beside this one as a library for just this machine: compiled at the first start, then cached.

It needs a C++ compiler: the one named by ``CXX``, else ``c++``, ``g++`` or ``clang++``; ``CXX=`` (empty) means none.
Where there is none or it fails, the device does without."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from mindserve_engine.user_cache import cache_folder

_FOLDER: Final = Path(__file__).parent
_SOURCES: Final = (
    "cpu_attention.cpp",
    "cpu_elementwise.cpp",
    "cpu_float_products.cpp",
    "cpu_layer.cpp",
    "cpu_products.cpp",
)
_HEADERS: Final = ("cpu_dot.h", "cpu_multiply.h", "cpu_numbers.h")
_FLAGS: Final = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fno-math-errno",  # these two let loops with comparisons be vectorised; NaN and infinity stay what they are
    "-fno-trapping-math",
    "-fopenmp",
    "-fPIC",
)
_LONGEST_S: Final = 120.0
_COMPILERS: Final = ("c++", "g++", "clang++")

log = logging.getLogger(__name__)


def load_library() -> ctypes.CDLL | None:
    """The library; ``None``, with a line in the log, where it cannot be had."""
    compiler = _find_compiler()
    if compiler is None:
        log.warning("no C++ compiler was found: the CPU computes with torch's own operators, which is slower")
        return None
    try:
        return _load(compiler)
    except (OSError, subprocess.SubprocessError) as error:
        reason = getattr(error, "stderr", None) or str(error)
        line = next((line for line in reason.splitlines() if "error" in line), reason.strip())
        log.warning("%s cannot compile the CPU kernels, torch's own operators take their place: %s", compiler, line)
        return None


def _find_compiler() -> str | None:
    named = os.environ.get("CXX")
    if named is not None:
        return shutil.which(named) if named else None
    return next((found for found in map(shutil.which, _COMPILERS) if found), None)


def _load(compiler: str) -> ctypes.CDLL:
    folder = _cache_folder()
    library = None if folder is None else folder / f"{_key(compiler)}.so"
    if library is not None and library.exists():
        with contextlib.suppress(OSError):  # a damaged file is made anew
            return ctypes.CDLL(str(library))
    with tempfile.TemporaryDirectory(prefix="kernels-", dir=folder) as scratch:
        fresh = _compile(compiler, Path(scratch))
        loaded = ctypes.CDLL(str(fresh))
        if library is not None:
            fresh.replace(library)  # whoever comes at the same time finds all or nothing
    return loaded


def _compile(compiler: str, folder: Path) -> Path:
    """Files side by side: one after the other they would take as long again."""

    def compiled(name: str) -> str:
        target = folder / f"{name}.o"
        _run(compiler, *_FLAGS, "-c", str(_FOLDER / name), "-o", str(target))
        return str(target)

    with ThreadPoolExecutor() as executor:
        objects = list(executor.map(compiled, _SOURCES))
    library = folder / "kernels.so"
    _run(compiler, *_FLAGS, "-shared", *objects, "-o", str(library))
    return library


def _run(*command: str) -> str:
    # S603: the compiler is the choice of whoever starts the server
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_LONGEST_S)  # noqa: S603
    return done.stdout


def _cache_folder() -> Path | None:
    """``None`` where it cannot be written."""
    folder = cache_folder(os.environ) / "kernels"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def _key(compiler: str) -> str:
    """Changes with the source, the compiler and the processor: ``-march=native`` fits no other."""
    digest = hashlib.sha256()
    for name in (*_SOURCES, *_HEADERS):
        digest.update(hashlib.sha256((_FOLDER / name).read_bytes()).digest())
    for part in (_run(compiler, "--version"), " ".join(_FLAGS), _processor()):
        digest.update(hashlib.sha256(part.encode()).digest())
    return digest.hexdigest()[:32]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = ("model name", "flags", "Features", "CPU part")
    told = [next((line for line in lines if line.startswith(name)), "") for name in names]
    return "\n".join([platform.machine(), platform.processor(), *told])
