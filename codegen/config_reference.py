"""The readable table of config.json."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from codegen.document import JsonObject
from codegen.profile.config import objects
from codegen.render import render
from codegen.schema_text import admits_null, bounds_text, default_text, type_text

_INNER = {"items": "[]", "additionalProperties": ".<key>"}
"""Where a field's inner objects are described, and how their place is written."""


@dataclass(frozen=True, slots=True)
class Key:
    """A row of the table; every cell is text."""

    name: str
    type: str
    default: str
    bounds: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Section:
    """An object of the file: `path` is where it stands, `ignored` the keys without a meaning here."""

    name: str
    path: str
    description: str
    keys: tuple[Key, ...]
    ignored: tuple[tuple[str, str], ...]


def generate(schema: JsonObject) -> str:
    """The Markdown text, without header."""
    return render("config.md.j2", description=schema["description"], sections=_sections(schema))


def _sections(schema: JsonObject) -> list[Section]:
    paths = dict(_paths(schema, "#", ""))
    return [_section(pointer, item, paths.get(f"#{pointer}", "")) for pointer, item in objects(schema).items()]


def _paths(schema: JsonObject, pointer: str, path: str) -> Iterator[tuple[str, str]]:
    """(pointer of an object, its place in the file), following references from the root down."""
    yield pointer, path
    found: JsonObject = objects(schema)[pointer.removeprefix("#")]
    for name, field in found["properties"].items():
        suffix, inner = next(((mark, field[key]) for key, mark in _INNER.items() if key in field), ("", field))
        if "$ref" in inner:
            yield from _paths(schema, inner["$ref"], f"{path}.{name}".removeprefix(".") + suffix)


def _section(pointer: str, schema: JsonObject, path: str) -> Section:
    fields: dict[str, Any] = schema["properties"]
    known = {name: field for name, field in fields.items() if not field.get("x-ignored")}
    return Section(
        name=pointer.rsplit("/", 1)[-1] or schema["title"],
        path=path,
        description=schema.get("description", ""),
        keys=tuple(_key(name, field, is_required=name in schema.get("required", [])) for name, field in known.items()),
        ignored=tuple((name, fields[name].get("description", "")) for name in fields if name not in known),
    )


def _key(name: str, field: JsonObject, *, is_required: bool) -> Key:
    null = " or null" if admits_null(field) else ""
    meaning = " ".join(field.get("description", "").split())
    extension = " Not a key of MindIE's." if field.get("x-extension") else ""
    cells = (
        f"`{name}`",
        f"{type_text(field)}{null}",
        "mandatory" if is_required else default_text(field),
        bounds_text(field),
        f"{meaning}{extension}",
    )
    return Key(*(cell.replace("|", "\\|") for cell in cells))
