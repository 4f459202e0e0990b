"""Files and functions stay small: the tail of their lengths is what makes a code base unreadable, not the median."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_P90_FUNCTION_LINES = 30
FOLDERS = ("src", "codegen", "conformance", "tests")


def _sources(*folders: str) -> list[Path]:
    """Hand-written Python files below ``folders``."""
    files = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in files if not any(part.startswith("_generated") for part in path.parts))


def _functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", (node.end_lineno or 0) - node.lineno + 1


def test_files_are_within_the_budget() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in _sources(*FOLDERS)}
    assert {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > MAX_FILE_LINES} == {}


def test_functions_are_within_the_budget() -> None:
    lengths = dict(pair for path in _sources(*FOLDERS) for pair in _functions(path))
    assert {name: n for name, n in lengths.items() if n > MAX_FUNCTION_LINES} == {}


@pytest.mark.parametrize(
    "package", ["src/mindserve", "src/mindserve_client", "src/mindserve_engine", "codegen", "conformance"]
)
def test_nine_functions_in_ten_are_short(package: str) -> None:
    lengths = sorted(n for path in _sources(package) for _, n in _functions(path))
    assert lengths[math.ceil(0.9 * len(lengths)) - 1] <= MAX_P90_FUNCTION_LINES
