"""What the browser page needs to know of a request's fields: a control for each, with its bounds."""

from __future__ import annotations

import json
import re
from typing import Any

from codegen.document import JsonObject
from codegen.profile.keywords import is_conditional
from codegen.schema_text import admits_null, bounds_text, notes_text, source_text, type_list, type_text
from codegen.sites import UNION_KEYWORDS, dereferenced, operations

_NUMBER_BOUNDS = {
    "minimum": "min",
    "maximum": "max",
    "exclusiveMinimum": "above",
    "exclusiveMaximum": "below",
}
"""Keyword -> its name for the page."""
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")


def generate(views: dict[str, JsonObject]) -> str:
    """JSON: dialect -> the fields of its chat request, in the order of the contract.

    A field has ``name``, ``kind`` (boolean, integer, number, choice, text or json), ``type`` and ``bounds`` in words,
    ``default``, ``notes``, ``source``, ``required``; numbers have ``min``, ``max``, ``above``, ``below`` and ``not`` as
    text, since not all of them are numbers that JavaScript can hold; choices have ``values``.
    """
    return json.dumps({dialect: _fields(document) for dialect, document in views.items()}, ensure_ascii=False, indent=1)


def _fields(document: JsonObject) -> list[JsonObject]:
    schema = _request_schema(document)
    required = schema.get("required", [])
    return [
        _field(document, name, field, is_required=name in required)
        for part in (schema, *schema.get("allOf", []))
        if not is_conditional(part)
        for name, field in part.get("properties", {}).items()
    ]


def _request_schema(document: JsonObject) -> JsonObject:
    """The body of the first operation that has one."""
    bodies = (item["requestBody"] for _, _, _, item in operations(document) if "requestBody" in item)
    body = dereferenced(document, next(bodies, {}))
    media: JsonObject = body.get("content", {}).get("application/json", {})
    return dereferenced(document, media.get("schema", {}))


def _field(document: JsonObject, name: str, schema: JsonObject, *, is_required: bool) -> JsonObject:
    kinds = _kinds(document, schema)
    made: JsonObject = {
        "name": name,
        "kind": _control(kinds, schema),
        "type": _plain(type_text(schema)),
        "bounds": _plain(bounds_text(schema)),
        "default": _default(schema),
        "notes": _plain(notes_text(schema)),
        "source": source_text(schema),
        "required": is_required,
        "admits_text": "string" in kinds,
        "admits_null": admits_null(schema),
    }
    made |= {short: repr(schema[key]) for key, short in _NUMBER_BOUNDS.items() if key in schema}
    if "const" in schema.get("not", {}):
        made["not"] = repr(schema["not"]["const"])
    if made["kind"] == "choice":
        made["values"] = [value for value in schema["enum"] if value is not None]
    return made


def _kinds(document: JsonObject, schema: JsonObject) -> set[str]:
    """The JSON types of its values, null aside."""
    found = dereferenced(document, schema)
    members = [member for key in UNION_KEYWORDS for member in found.get(key, [])]
    inner = {kind for member in members for kind in _kinds(document, member)}
    return inner | (set(type_list(found)) - {"null"})


def _control(kinds: set[str], schema: JsonObject) -> str:
    if kinds == {"string"}:
        return "choice" if "enum" in schema else "text"
    return next((kind for kind in ("boolean", "integer", "number") if kinds == {kind}), "json")


def _default(schema: JsonObject) -> str:
    """As it is written in a request, or in words; "" where nothing is what an absent field means."""
    value: Any = schema.get("default")
    if "x-default" in schema:
        return str(schema["x-default"])
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _plain(text: str) -> str:
    """Without the marks of Markdown: links become their names."""
    return _LINK.sub(r"\1", text).replace("`", "")
