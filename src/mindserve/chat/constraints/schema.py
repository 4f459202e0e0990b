"""JSON Schemas as grammars take them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mindserve.chat.constraints.patterns import MAX_MEETING, too_many_meet
from mindserve.chat.constraints.termination import is_endless

Schema = dict[str, Any]

ANY_OBJECT: Final[Schema] = {"type": "object"}
MAX_PROPERTIES: Final = 512
"""Of one object: the time to compile a grammar grows with the square of it."""
MAX_KEY_PATTERNS: Final = 64
"""Of all objects together, since ``allOf`` may join them: each is held against each, 64 in a quarter of a second."""
_WRITING: Final[Mapping[str, Any]] = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
}
"""How models were taught to write JSON. Free white space would let a confused model go on with nothing else."""


class SchemaUnfit(Exception):
    """The schema cannot be enforced. The text says why."""


def enforced(schema: Schema) -> Schema:
    """``schema`` for a grammar that follows it to the letter. Raises ``SchemaUnfit``."""
    widest = _widest(schema)
    if widest > MAX_PROPERTIES:
        raise SchemaUnfit(f"an object in it has {widest} properties, {MAX_PROPERTIES} can be enforced")
    num_keys = _num_key_patterns(schema)
    if num_keys > MAX_KEY_PATTERNS:
        raise SchemaUnfit(f"it has {num_keys} patternProperties, {MAX_KEY_PATTERNS} can be enforced")
    if is_endless(schema):
        raise SchemaUnfit("no finite text fits it: its references lead back to themselves")
    if too_many_meet(schema):
        raise SchemaUnfit(f"more than {MAX_MEETING} patterns or formats meet at one place in it")
    return {**schema, "x-guidance": dict(_WRITING)}


def suggested(schema: Schema) -> Schema:
    """``schema`` for a grammar that passes over what it cannot enforce."""
    is_wide = _widest(schema) > MAX_PROPERTIES or _num_key_patterns(schema) > MAX_KEY_PATTERNS
    if is_wide or is_endless(schema) or too_many_meet(schema):
        schema = ANY_OBJECT
    return {**schema, "x-guidance": {**_WRITING, "lenient": True}}


def arguments_schema(parameters: Schema | None, *, is_strict: bool) -> Schema:
    """The schema of a tool's arguments, which are an object whatever else is said. Raises ``SchemaUnfit``."""
    schema = dict(parameters or {})
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise SchemaUnfit('its type must be "object": that is what arguments are')
    schema["type"] = "object"
    if is_strict:
        schema.setdefault("additionalProperties", False)  # the documented default (reading C8)
    return schema


def _widest(schema: Any) -> int:
    """The most properties of one object."""
    return max(map(len, _members(schema, "properties")), default=0)


def _num_key_patterns(schema: Any) -> int:
    return sum(map(len, _members(schema, "patternProperties")))


def _members(schema: Any, key: str) -> Iterator[dict[str, Any]]:
    """The objects under ``key`` anywhere in the schema, found without recursion."""
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if isinstance(one.get(key), dict):
                yield one[key]
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def property_schemas(schema: Schema) -> Iterator[tuple[str, Schema, bool]]:
    """Name, schema and whether it is required, of the properties of an object. Raises ``SchemaUnfit`` when there is
    more to the object than its properties."""
    beside = sorted(schema.keys() & {"$ref", "allOf", "anyOf", "oneOf", "patternProperties", "not", "if"})
    if beside:
        raise SchemaUnfit(f"{beside[0]} beside properties cannot be written in this model's format")
    required = schema.get("required") or []
    for name, value in (schema.get("properties") or {}).items():
        part = value if isinstance(value, dict) else {}
        definitions: Schema = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
        yield name, {**definitions, **part}, name in required
