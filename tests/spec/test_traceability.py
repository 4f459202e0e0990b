"""Every line of the document is in the contract, every field says where it comes from, every reading is used."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Keys under which a mapping's keys are names chosen by the contract, not keywords.
NAME_MAPS = {"properties", "schemas", "responses", "headers", "paths"}
HEADINGS = {"id", "topic"}
WORD_RUN = 8


@pytest.fixture(scope="session")
def readings(spec_path: Path) -> dict[str, str]:
    """Number -> row of interpretations.md."""
    text = (spec_path / "docs" / "interpretations.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\| ([A-Z]\d+) \|(.*)$", text, re.MULTILINE))


def _fields(value: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every described property, those of open maps included; conditions between fields are no fields."""
    if isinstance(value, dict):
        for name, field in value.get("properties", {}).items():
            yield f"{place}.{name}", field
            yield from _fields(field, f"{place}.{name}")
        for key in ("then", "items"):
            if isinstance(value.get(key), dict):
                yield from _fields(value[key], place)
        for key in ("anyOf", "oneOf"):
            for member in value.get(key, []):
                yield from _fields(member, place)


def _all_fields(schemas: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [found for name, schema in schemas.items() for found in _fields(schema, name)]


def _values_of(value: Any, keys: set[str]) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key in keys:
                yield from item if isinstance(item, list) else [item]
            else:
                yield from _values_of(item, keys)
    elif isinstance(value, list):
        for item in value:
            yield from _values_of(item, keys)


def test_every_line_of_the_tables_has_a_field(contract: dict[str, Any]) -> None:
    tables = {**contract["x-mindie"]}
    assert (tables.pop("document"), tables) == (
        "v1/chat",
        {"request-table": [26, 75], "response-table": [584, 621], "stream-table": [625, 662]},
    )
    lines = {line for first, last in tables.values() for line in range(first, last + 1)}
    assert set(_values_of(contract, {"x-doc-ref"})) == lines


def test_every_field_is_described_and_names_its_source(schemas: dict[str, Any]) -> None:
    fields = _all_fields(schemas)
    assert len(fields) > 100
    assert [place for place, field in fields if not field.get("description")] == []
    assert [place for place, field in fields if not {"x-doc-ref", "x-interpretation"} & set(field)] == []


def test_rules_name_their_source(contract: dict[str, Any]) -> None:
    rules = contract["paths"]["/v1/chat/completions"]["post"]["x-rules"]
    assert [rule["id"] for rule in rules if not {"doc-ref", "interpretation"} & set(rule)] == []
    lines = {rule["doc-ref"] for rule in rules if "doc-ref" in rule}
    assert all(26 <= line <= 75 for line in lines)


def test_readings_are_numbered_without_gaps(readings: dict[str, str]) -> None:
    for letter, count in {"R": 30, "S": 17, "D": 13}.items():
        assert [name for name in readings if name[0] == letter] == [f"{letter}{n}" for n in range(1, count + 1)]
    for letter in "CHE":
        named = [name for name in readings if name[0] == letter]
        assert named == [f"{letter}{n}" for n in range(1, len(named) + 1)]


def test_cited_readings_exist_and_all_are_cited(contract: dict[str, Any], readings: dict[str, str]) -> None:
    cited = set(_values_of(contract, {"x-interpretation", "interpretation"}))
    assert cited - set(readings) == set()
    # Readings of examples change no field as a rule.
    assert {name for name in readings if name[0] != "E"} - cited == set()


def _extension_keys(value: Any, *, is_name_map: bool = False) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key.startswith("x-") and not is_name_map:
                yield key
            yield from _extension_keys(item, is_name_map=key in NAME_MAPS and not is_name_map)
    elif isinstance(value, list):
        for item in value:
            yield from _extension_keys(item)


def test_extensions_used_are_the_extensions_described(contract: dict[str, Any], spec_path: Path) -> None:
    text = (spec_path / "docs" / "extensions.md").read_text(encoding="utf-8")
    assert set(_extension_keys(contract)) == set(re.findall(r"^## `(x-[a-z-]+)`$", text, re.MULTILINE))


def test_texts_are_our_own(contract: dict[str, Any]) -> None:
    """No eight words in a row are the document's. Of the document only hashes of its word runs are kept."""
    known = set((Path(__file__).parent / "document_word_runs.txt").read_text(encoding="ascii").split())
    assert len(known) > 3000
    copied = []
    for text in _values_of(contract, {"description", "summary", "message", "when"}):
        words = re.findall(r"[a-z0-9_]+", str(text).lower())
        runs = (" ".join(words[i : i + WORD_RUN]) for i in range(len(words) - WORD_RUN + 1))
        copied += [run for run in runs if hashlib.sha256(run.encode()).hexdigest()[:10] in known]
    assert copied == []
