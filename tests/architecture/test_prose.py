"""The documents at the root keep their budgets and name things that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("name", "max_lines"), [("README.md", 150), ("ARCHITECTURE.md", 60)])
def test_length(name: str, max_lines: int) -> None:
    assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= max_lines


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_relative_links_lead_somewhere(name: str) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / name).read_text(encoding="utf-8"))
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_make_targets_named_in_documents_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"):
        named = set(re.findall(r"`make ([a-z-]+)", (ROOT / name).read_text(encoding="utf-8")))
        assert named <= targets, name


def test_the_root_holds_what_the_architecture_says() -> None:
    allowed = {
        "spec", "codegen", "src", "tests", "conformance", "pyproject.toml", "Makefile", "README.md", "ARCHITECTURE.md",
        "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "deploy",
    }  # fmt: skip
    assert {path.name for path in ROOT.iterdir() if not path.name.startswith(".")} - allowed == set()
