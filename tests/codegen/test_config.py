"""The lint of the config schema, and what the pydantic models made from it accept."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from codegen import config_models, config_reference, models
from codegen.document import load
from codegen.profile.config import lint

SCHEMA = Path(__file__).with_name("specs") / "config" / "config.schema.yaml"
FAULTS = [
    ("port: {description: The port., ", "port: {", ("description", "/$defs/Server/properties/port")),
    ("minimum: 1024", "x-least: 1024", ("extension", "/$defs/Server/properties/port/x-least")),
    ("default: 1025", "default: 80", ("default", "/$defs/Server/properties/port/default")),
    ("exclusiveMinimum: 0", "uniqueItems: true", ("lost", "/$defs/Server/properties/share/uniqueItems")),
    (
        "items: {$ref: '#/$defs/Model'}",
        "items: {$ref: '#/$defs/Modell'}",
        ("reference", "/properties/Models/items/$ref"),
    ),
    (
        "additionalProperties: {$ref: '#/$defs/Model'}",
        "additionalProperties: {type: string}",
        ("A1", "/properties/ByName/additionalProperties"),
    ),
    ("'Part of memory | cache.'", "Part of memory, cache.", ("lost", "/$defs/Server/properties/share/cache.")),
    ("type: boolean", "type: object, properties: {a: {}}", ("A1", "/$defs/Server/properties/secure")),
    ("required: [name]", "if: {}", ("lost", "/$defs/Model/if")),
]


def _lint(folder: Path, old: str, new: str) -> set[tuple[str, str]]:
    text = SCHEMA.read_text("utf-8")
    assert text.count(old) == 1
    path = folder / "config.schema.yaml"
    path.write_text(text.replace(old, new), "utf-8")
    return {(fault.code, fault.pointer) for fault in lint(load(path))}


@pytest.mark.parametrize(("old", "new", "fault"), FAULTS, ids=[new for _, new, _ in FAULTS])
def test_what_the_models_would_lose_is_refused(tmp_path: Path, old: str, new: str, fault: tuple[str, str]) -> None:
    assert fault in _lint(tmp_path, old, new)


def test_a_sound_schema_is_not_refused() -> None:
    assert lint(load(SCHEMA)) == []


@pytest.fixture(scope="module")
def config() -> Iterator[Any]:
    """The root model of the tiny schema."""
    with models.loaded(config_models.generate(load(SCHEMA).data), name="codegen_test_config") as module:
        assert sys.modules["codegen_test_config"] is module
        yield module.Config


def test_an_empty_file_has_every_default(config: Any) -> None:
    made = config.model_validate({})
    assert (made.server.port, made.server.share, made.server.address, made.server.secure) == (1025, 0.5, None, False)
    assert (made.models, made.by_name, made.legacy) == ([], {}, None)


def test_a_map_holds_models(config: Any) -> None:
    assert config.model_validate({"ByName": {"x": {"name": "a"}}}).by_name["x"].level == "low"
    with pytest.raises(ValidationError) as refusal:
        config.model_validate({"ByName": {"x": {"name": "a", "block": 1}}})
    assert refusal.value.errors()[0]["loc"] == ("ByName", "x", "block")


def test_the_table_tells_where_a_maps_values_stand() -> None:
    text = config_reference.generate(load(SCHEMA).data)
    assert "| `ByName` | map of [Model](#model) | `{}` |" in text
    assert "In the file: `ByName.<key>`." in text


@pytest.mark.parametrize(
    "server",
    [{"port": 1024}, {"port": 65535}, {"share": 1}, {"share": 0.001}, {"address": None}, {"address": ""}, {"odd": 1}],
)
def test_accepts(config: Any, server: dict[str, Any]) -> None:
    config.model_validate({"Server": server})


@pytest.mark.parametrize(
    "server",
    [
        *({"port": value} for value in (1023, 65536, "1025", True, 1025.0, None)),
        *({"share": value} for value in (0, 1.1, "0.5", True)),
        *({"address": value} for value in (0, ["x"])),
        *({"secure": value} for value in (1, "true", None)),
    ],
)
def test_refuses_and_names_the_place(config: Any, server: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as refusal:
        config.model_validate({"Server": server})
    assert [error["loc"] for error in refusal.value.errors()] == [("Server", *server)]


@pytest.mark.parametrize(
    "model", [{}, {"name": ""}, {"name": "A"}, {"name": "a", "level": "mid"}, {"name": "a", "block": 24}]
)
def test_refuses_a_model(config: Any, model: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        config.model_validate({"Models": [model]})


def test_what_marks_a_key_stays_with_its_field(config: Any) -> None:
    assert config.model_fields["legacy"].json_schema_extra == {"x-ignored": True}
    assert type(config().server).model_fields["share"].json_schema_extra == {"x-extension": True}
