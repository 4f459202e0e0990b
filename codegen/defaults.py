"""Defaults of request fields, as constants: models keep "not set" apart from "set to the default"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from codegen.document import JsonObject
from codegen.render import render
from codegen.sites import Position, component_sites


@dataclass(frozen=True, slots=True)
class Default:
    """The default of one field; `number` fields have float defaults whatever the spec's spelling."""

    field: str
    value: Any


def read_defaults(document: JsonObject) -> dict[str, list[Default]]:
    """Component name -> defaults of its fields. A default of null says "absent" and is no constant."""
    found: dict[str, list[Default]] = {}
    for site in component_sites(document):
        value = site.schema.get("default")
        if site.position is Position.PROPERTY and value is not None:
            found.setdefault(site.component, []).append(Default(site.name, _typed(site.schema, value)))
    return found


def _typed(schema: JsonObject, value: Any) -> Any:
    types = schema.get("type", [])
    is_float = "number" in ([types] if isinstance(types, str) else types)
    return float(value) if is_float else value


def generate(document: JsonObject) -> str:
    """The source of the defaults module, without header."""
    return render("defaults.py.j2", defaults=read_defaults(document))
