"""The exact text that is generated from tiny specs; `python -m tests.codegen.regenerate` renews it."""

from __future__ import annotations

import pytest

from tests.codegen.regenerate import GOLDEN, outputs


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return outputs()


def test_there_is_a_golden_file_for_each_output_and_no_other(made: dict[str, str]) -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(made)


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.iterdir()))
def test_the_text_is_as_it_was(name: str, made: dict[str, str]) -> None:
    assert made[name] == (GOLDEN / name).read_text(encoding="utf-8")
