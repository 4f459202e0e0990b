"""What the contract expects at a place of the request body, in words: "an integer between 1 and 128".

The words are made from the JSON Schema of ``spec/openapi.yaml``, so that an error text never states a bound of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

Schema = dict[str, Any]
Path = tuple[str | int, ...]
"""Keys and indices from the root of the body."""

MISSING: Final = object()


_ARTICLES: Final = {
    "integer": "an integer",
    "number": "a number",
    "string": "a string",
    "boolean": "a boolean",
    "array": "a list",
    "object": "an object",
}


def value_at(body: object, path: Path) -> object:
    """The value of ``body`` at ``path``, or ``MISSING``."""
    for step in path:
        try:
            body = body[step]  # type: ignore[index]  # what has no items raises
        except (TypeError, LookupError):
            return MISSING
    return body


class Expectations:
    """The schemas of one request body. ``document`` is the whole OpenAPI document, ``component`` the body's schema."""

    def __init__(self, document: Schema, component: str) -> None:
        self._document = document
        self._root: Schema = document["components"]["schemas"][component]

    def at(self, path: Path, body: object) -> str | None:
        """What is expected at ``path``; ``body`` tells which branch of a union applies. None: the place is free."""
        schemas = list(self._branches(self._root))
        for step in path:
            schemas = self._fitting(schemas, body)
            schemas = [branch for schema in schemas for branch in self._below(schema, step)]
            body = value_at(body, (step,))
        words = dict.fromkeys(_words(schema) for schema in schemas if not _is_null(schema))
        return " or ".join(word for word in words if word) or None

    def _branches(self, schema: Schema) -> Iterator[Schema]:
        while "$ref" in schema:
            target: Any = self._document
            for key in schema["$ref"].removeprefix("#/").split("/"):
                target = target[key]
            schema = target
        members = [*schema.get("oneOf", ()), *schema.get("anyOf", ())]
        for member in members:
            yield from self._branches(member)
        if not members:
            yield from _single_types(schema)

    def _below(self, schema: Schema, step: str | int) -> Iterator[Schema]:
        below = schema.get("items") if isinstance(step, int) else schema.get("properties", {}).get(step)
        if below is None and isinstance(step, str):
            below = schema.get("additionalProperties")
        if isinstance(below, dict):
            yield from self._branches(below)

    def _fitting(self, schemas: list[Schema], value: object) -> list[Schema]:
        """The branches whose constant properties (role, type) are those of ``value``, if there are such."""
        if not isinstance(value, dict) or len(schemas) == 1:
            return schemas
        objects = [schema for schema in schemas if "properties" in schema] or schemas
        return [schema for schema in objects if self._tags_agree(schema, value)] or objects

    def _tags_agree(self, schema: Schema, value: dict[str, object]) -> bool:
        for name, member in schema.get("properties", {}).items():
            choices = _choices(next(self._branches(member), {}))
            if choices and name in value and value[name] not in choices:
                return False
        return True


def _single_types(schema: Schema) -> Iterator[Schema]:
    kinds = schema.get("type")
    for kind in kinds if isinstance(kinds, list) else (kinds,):
        yield {**schema, "type": kind}


def _is_null(schema: Schema) -> bool:
    return schema.get("type") == "null"


def _choices(schema: Schema) -> list[object]:
    if "const" in schema:
        return [schema["const"]]
    return [choice for choice in schema.get("enum", ()) if choice is not None]


def _words(schema: Schema) -> str:
    choices = _choices(schema)
    if choices:
        return ("one of " if len(choices) > 1 else "") + ", ".join(json.dumps(choice) for choice in choices)
    kind = schema.get("type")
    if kind in ("integer", "number"):
        return f"{_ARTICLES[kind]}{_range(schema)}"
    if kind == "string":
        return f"a string{_size(schema.get('minLength', 0), schema.get('maxLength'), 'character')}"
    if kind == "array":
        return f"a list{_size(schema.get('minItems', 0), schema.get('maxItems'), 'item')}"
    if kind == "object":
        return f"an object{_size(schema.get('minProperties', 0), schema.get('maxProperties'), 'key')}"
    return _ARTICLES.get(kind or "", "")


def _range(schema: Schema) -> str:
    above, least = schema.get("exclusiveMinimum"), schema.get("minimum")
    below, most = schema.get("exclusiveMaximum"), schema.get("maximum")
    if least is not None and most is not None:
        return f" between {number_text(least)} and {number_text(most)}"
    bounds = [("greater than", above), ("at least", least), ("less than", below), ("at most", most)]
    parts = [f"{words} {number_text(bound)}" for words, bound in bounds if bound is not None]
    return f", {' and '.join(parts)}" if parts else ""


def _size(least: int, most: int | None, unit: str) -> str:
    if most is not None:
        return f" of {least} to {most} {unit}s"
    return f" of at least {least} {unit}{'s' * (least != 1)}" if least else ""


def number_text(number: float) -> str:
    """As people write it: 1e-6, not 1e-06."""
    return json.dumps(number).replace("e-0", "e-")
