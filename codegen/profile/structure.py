"""Whether a document is OpenAPI and its schemas are JSON Schemas; the rest of the profile takes that for granted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

import jsonschema_rs

from codegen.diagnostics import Diagnostic
from codegen.dialects import DIALECTS
from codegen.document import JsonObject
from codegen.pointer import join
from codegen.sites import SCHEMAS, UNION_KEYWORDS, keywords

_BOUNDS = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"),
        *("minItems", "maxItems", "minProperties", "maxProperties"),
    }
)
_TEXT = {"type": "string"}
_TEXTS = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
_STATUS = {"type": "integer", "minimum": 400, "maximum": 599}
_DIALECT = {"enum": list(DIALECTS)}
_EVENT = {"type": "object", "required": ["name"], "additionalProperties": _TEXT, "properties": {"dialect": _DIALECT}}
# What the keys hold at all; whether it makes sense is told by the profiles of rules and of provenance.
_SHAPES: dict[str, JsonObject] = {
    "discriminator": {"properties": {"propertyName": _TEXT, "mapping": {"additionalProperties": _TEXT}}},
    "x-constants": {
        "type": "array",
        "items": {"type": "object", "properties": {"interpretation": _TEXT}},
    },
    "x-dialect": _DIALECT,
    "x-interpretation": _TEXTS,
    "x-openai": {"type": "object", "minProperties": 1},
    "x-rule": _TEXTS,
    "x-rules": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "id": _TEXT,
                "message": _TEXT,
                "field": _TEXT,
                "interpretation": _TEXT,
                "dialect": _DIALECT,
            },
        },
    },
    "x-statuses": {"type": "array", "items": {"anyOf": [_STATUS, {"type": "array", "items": _STATUS, "minItems": 1}]}},
    "x-stream": {"type": "object", "properties": {"events": {"type": "array", "items": _EVENT}}},
    "x-unit": _TEXT,
}


def check_openapi(document: JsonObject) -> Iterator[Diagnostic]:
    """The document against the schema of OpenAPI 3.1, its schemas against that of JSON Schema, our keys likewise."""
    for error in _openapi().iter_errors(document):
        yield Diagnostic(join("", *error.instance_path), "structure", error.message[:200])
    components = document.get("components", {})
    schemas = components.get("schemas", {}) if isinstance(components, dict) else {}
    for name, schema in schemas.items() if isinstance(schemas, dict) else ():
        yield from check_schema(schema, join(SCHEMAS, name))
    for pointer, key, value in keywords(document):
        if key == "schema" and not pointer.startswith(SCHEMAS):
            yield from check_schema(value, pointer)
        if key in _SHAPES:
            for error in _shape(key).iter_errors(value):
                yield Diagnostic(join(pointer, *error.instance_path), "structure", error.message[:200])


def check_schema(schema: object, pointer: str) -> Iterator[Diagnostic]:
    """`schema` against the schema of JSON Schema 2020-12."""
    if not isinstance(schema, dict):
        yield Diagnostic(pointer, "structure", "a schema is an object here")
        return
    for error in _json_schema().iter_errors(schema):
        place = join(pointer, *error.instance_path)
        if error.instance_path and error.instance_path[-1] in _BOUNDS:
            yield Diagnostic(place, "bound", f"{error.message[:200]} (YAML reads 1e-6 as text: write 1.0e-6)")
        else:
            yield Diagnostic(place, "structure", error.message[:200])
    for place, key, value in keywords(schema, pointer):
        holds_schemas = key in ("properties", "$defs") and isinstance(value, dict)
        for name, item in value.items() if holds_schemas else ():
            if not isinstance(item, dict):
                yield Diagnostic(join(place, name), "structure", "a schema is an object here")
        if key == "items" and not isinstance(value, dict):
            yield Diagnostic(place, "structure", "a schema is an object here")
        if (
            key in (*UNION_KEYWORDS, "allOf")
            and isinstance(value, list)
            and not all(isinstance(item, dict) for item in value)
        ):
            yield Diagnostic(place, "structure", "schemas are objects here")


@cache
def _shape(key: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(_SHAPES[key])


@cache
def _openapi() -> jsonschema_rs.Draft202012Validator:
    text = (files("openapi_spec_validator") / "resources/schemas/v3.1/schema.json").read_text("utf-8")
    return jsonschema_rs.Draft202012Validator(json.loads(text))


@cache
def _json_schema() -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator({"$ref": "https://json-schema.org/draft/2020-12/schema"})
