"""Reading a spec: whatever YAML would change or lose in silence is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from codegen.diagnostics import SpecRefused
from codegen.document import as_json, load
from codegen.pointer import join, resolve


def _load(directory: Path, text: str) -> object:
    path = directory / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    return load(path).data


def _faults(directory: Path, text: str) -> list[tuple[str, str]]:
    with pytest.raises(SpecRefused) as refusal:
        _load(directory, text)
    return [(fault.pointer, fault.code) for fault in refusal.value.diagnostics]


def test_duplicate_keys_are_refused_wherever_they_stand(tmp_path: Path) -> None:
    text = "a: {b: 1, b: 2}\nc: [{d/e: 1, d/e: 2}]\n"
    assert _faults(tmp_path, text) == [("/a/b", "yaml"), ("/c/0/d~1e", "yaml")]


def test_keys_that_json_does_not_have_are_refused(tmp_path: Path) -> None:
    assert _faults(tmp_path, "responses: {200: ok, on: ok}\n") == [
        ("/responses/200", "yaml"),
        ("/responses/on", "yaml"),
    ]


def test_a_date_stays_the_text_that_it_is_in_json(tmp_path: Path) -> None:
    assert _load(tmp_path, "version: 2026-11-30\n") == {"version": "2026-11-30"}


def test_numbers_of_any_size_are_exact(tmp_path: Path) -> None:
    assert _load(tmp_path, "seed: 18446744073709551615\n") == {"seed": 18446744073709551615}


def test_an_anchor_is_the_value_it_stands_for(tmp_path: Path) -> None:
    assert _load(tmp_path, "a: &most 20\nb: *most\n") == {"a": 20, "b": 20}


@pytest.mark.parametrize("text", ["a: [1\n", "- a\n", ""], ids=["broken", "list", "empty"])
def test_what_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    assert _faults(tmp_path, text) == [("", "yaml")]


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(SpecRefused, match=r"cannot be read: No such file"):
        load(tmp_path / "nowhere.yaml")


def test_json_is_compact_in_source_order_and_keeps_its_characters(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("z: ≥\na: [1.0, null]\n", encoding="utf-8")
    assert as_json(load(path).data) == '{"z":"≥","a":[1.0,null]}'
    assert json.loads(as_json(load(path).data)) == load(path).data


def test_pointers_escape_what_separates_them() -> None:
    pointer = join("/paths", "/v1/{a~b}", 0)
    assert pointer == "/paths/~1v1~1{a~0b}/0"
    assert resolve({"paths": {"/v1/{a~b}": ["here"]}}, pointer) == "here"


@pytest.mark.parametrize("pointer", ["#/a/2", "#/a/x", "#/b", "#/a/0/c"])
def test_a_pointer_that_leads_nowhere_is_a_key_error(pointer: str) -> None:
    with pytest.raises(KeyError):
        resolve({"a": ["x", "y"]}, pointer)
