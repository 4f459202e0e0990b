"""JSON Schemas as grammars take them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mindserve.chat.constraints.patterns import MAX_MEETING, too_many_meet
from mindserve.chat.constraints.termination import is_endless, references

Schema = dict[str, Any]

ANY_OBJECT: Final[Schema] = {"type": "object"}
MAX_PROPERTIES: Final = 512
"""Of one object: the time to compile a grammar grows with the square of it."""
MAX_KEY_PATTERNS: Final = 64
"""Of all objects together, since ``allOf`` may join them: each is held against each, 64 in a quarter of a second."""
_EXACT: Final = 2**53
_BESIDE: Final = frozenset(
    {
        "$ref",
        "allOf",
        "anyOf",
        "const",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "enum",
        "if",
        "maxProperties",
        "minProperties",
        "not",
        "oneOf",
        "patternProperties",
        "propertyNames",
    }
)
"""What may ask more of an object than its properties do."""
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
    if _has_far_bound(schema):
        raise SchemaUnfit("a bound of numbers in it is beyond 2^53 and would not be held exactly")
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
    return {**schema, "x-guidance": {**_WRITING, "lenient": True, "coerce_one_of": True}}


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
    """The objects under ``key`` anywhere in the schema."""
    return (one[key] for one in _objects(schema) if isinstance(one.get(key), dict))


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    """All objects in the schema, found without recursion."""
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def _has_far_bound(schema: Any) -> bool:
    """Whether a bound of numbers would not be held: the grammar compiler counts in float64 and int64."""
    signs = {"minimum": -1, "exclusiveMinimum": -1, "maximum": 1, "exclusiveMaximum": 1}
    return any(
        isinstance(one.get(key), int | float) and _is_far(sign * one[key])
        for one in _objects(schema)
        for key, sign in signs.items()
    )


def _is_far(upper: float) -> bool:
    return upper < -_EXACT or (_EXACT < upper < 2**63 - 1 and float(upper) != upper)


def is_lenient(schema: Schema) -> bool:
    """Whether it comes of ``suggested``."""
    return bool(schema.get("x-guidance", {}).get("lenient"))


def property_schemas(schema: Schema) -> Iterator[tuple[str, Schema, bool]]:
    """Name, schema and whether it is required, of the properties of an object. Raises ``SchemaUnfit`` when there is
    more to the object than its properties, unless that need not be enforced."""
    properties, required = schema.get("properties") or {}, schema.get("required") or []
    beside = sorted(_BESIDE & schema.keys()) + sorted({*required} - {*properties})
    if beside and not is_lenient(schema):
        raise SchemaUnfit(f"{beside[0]} beside properties cannot be written in this model's format")
    definitions: Schema = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    for name, value in properties.items():
        part = {**definitions, **(value if isinstance(value, dict) else {})}
        elsewhere = sorted(one for one in references(part) if not one.startswith(("#/$defs/", "#/definitions/")))
        if elsewhere and not is_lenient(schema):
            raise SchemaUnfit(f"{elsewhere[0]}: only $defs can be referred to in this model's format")
        yield name, {} if elsewhere else part, name in required
