"""JSON Schemas as grammars take them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mindserve.chat.constraints.termination import is_endless

Schema = dict[str, Any]

ANY_OBJECT: Final[Schema] = {"type": "object"}
MAX_PROPERTIES: Final = 512
"""Of one object: the time to compile a grammar grows with the square of it."""
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
    widest = max(map(len, _properties(schema)), default=0)
    if widest > MAX_PROPERTIES:
        raise SchemaUnfit(f"an object in it has {widest} properties, {MAX_PROPERTIES} can be enforced")
    if is_endless(schema):
        raise SchemaUnfit("no finite text fits it: its references lead back to themselves")
    return {**schema, "x-guidance": dict(_WRITING)}


def suggested(schema: Schema) -> Schema:
    """``schema`` for a grammar that passes over what it cannot enforce."""
    if is_endless(schema) or max(map(len, _properties(schema)), default=0) > MAX_PROPERTIES:
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


def _properties(schema: Any) -> Iterator[dict[str, Any]]:
    """Those of all objects in the schema, found without recursion."""
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if isinstance(one.get("properties"), dict):
                yield one["properties"]
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
