"""pydantic models of config.json, made by datamodel-code-generator."""

from __future__ import annotations

from codegen.datamodel import PYDANTIC_FROM_JSON_SCHEMA, run
from codegen.diagnostics import Diagnostic, SpecRefused
from codegen.document import JsonObject
from codegen.profile.config import DEFINITIONS


def generate(schema: JsonObject) -> str:
    """The source of the configuration models, without header; a constraint that is dropped is refused."""
    source, complaints = run(_without_texts(schema), PYDANTIC_FROM_JSON_SCHEMA)
    if complaints:
        raise SpecRefused([Diagnostic("", "generator", text) for text in complaints])
    return source


def _without_texts(schema: JsonObject) -> JsonObject:
    """The schema without the descriptions of keys: they stand in the table of `docs/config.md`."""
    view = {key: value for key, value in schema.items() if key not in ("properties", DEFINITIONS, "$id")}
    if DEFINITIONS in schema:
        view[DEFINITIONS] = {name: _without_texts(value) for name, value in schema[DEFINITIONS].items()}
    view["properties"] = {
        name: {key: value for key, value in field.items() if key != "description"}
        for name, field in schema.get("properties", {}).items()
    }
    return view
