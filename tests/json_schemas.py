"""Random JSON Schemas of the kinds that people write for tools and answers, every one of which something fits."""

from __future__ import annotations

import random
from typing import Any

_NAMES = ("name", "city", "größe", "unit", "a b", 'q"uote', "日期", "items", "value", "back\\slash")
_PATTERNS = ("^[a-c]{2,5}$", "^\\d{3}-\\d{2}$", "^(yes|no)$", "^[A-Z][a-z]*$", "x+y?")
_FORMATS = ("date", "uuid", "ipv4")
"""Not the times (llguidance allows a leap second in any minute) nor addresses (and those of any length)."""


def random_schema(rng: random.Random, depth: int = 3) -> dict[str, Any]:
    """Objects and arrays nest at most ``depth`` deep."""
    makers = [_string, _integer, _number, _enum, _constant, _fixed]
    if depth:
        makers += [_object, _object, _object, _array, _array, _any_of, _reference]
    return rng.choice(makers)(rng, depth)


def _string(rng: random.Random, _depth: int) -> dict[str, Any]:
    kind = rng.randrange(4)
    if kind == 0:
        return {"type": "string", "pattern": rng.choice(_PATTERNS)}
    if kind == 1:
        return {"type": "string", "format": rng.choice(_FORMATS)}
    shortest = rng.randrange(4)
    return {"type": "string", "minLength": shortest, "maxLength": shortest + rng.randrange(12)}


def _integer(rng: random.Random, _depth: int) -> dict[str, Any]:
    low = rng.randrange(-1000, 1000)
    bounds = rng.choice([("minimum", "maximum"), ("exclusiveMinimum", "exclusiveMaximum")])
    return {"type": "integer", bounds[0]: low, bounds[1]: low + 2 + rng.randrange(5000)}


def _number(rng: random.Random, _depth: int) -> dict[str, Any]:
    low = rng.choice([-2.5, 0, 0.25, 10])
    return {"type": "number", "minimum": low, "maximum": low + rng.choice([1, 0.5, 100])}


def _enum(rng: random.Random, _depth: int) -> dict[str, Any]:
    return {"enum": rng.sample(["red", "grün", 1, 2.5, None, True, 'a"b', {"k": [1]}, []], rng.randrange(1, 6))}


def _constant(rng: random.Random, _depth: int) -> dict[str, Any]:
    return {"const": rng.choice(["only", 7, None, False, ["x", 1]])}


def _fixed(rng: random.Random, _depth: int) -> dict[str, Any]:
    return {"type": rng.choice(["boolean", "null", ["boolean", "null"]])}


def _object(rng: random.Random, depth: int) -> dict[str, Any]:
    names = rng.sample(_NAMES, rng.randrange(1, 4))
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: random_schema(rng, depth - 1) for name in names},
        "required": rng.sample(names, rng.randrange(len(names) + 1)),
    }
    if rng.random() < 0.8:
        schema["additionalProperties"] = False
    else:
        schema["additionalProperties"] = _fixed(rng, 0)
    return schema


def _array(rng: random.Random, depth: int) -> dict[str, Any]:
    fewest = rng.randrange(3)
    schema = {"type": "array", "minItems": fewest, "maxItems": fewest + rng.randrange(3)}
    if rng.random() < 0.3:
        return {**schema, "prefixItems": [random_schema(rng, 0)], "items": random_schema(rng, depth - 1)}
    return {**schema, "items": random_schema(rng, depth - 1)}


def _any_of(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"anyOf": [random_schema(rng, depth - 1) for _ in range(rng.randrange(1, 4))]}


def _reference(rng: random.Random, depth: int) -> dict[str, Any]:
    """A list that may go on, and something that is defined elsewhere."""
    return (
        {
            "$defs": {"thing": random_schema(rng, 0)},
            "type": "object",
            "properties": {"head": {"$ref": "#/$defs/thing"}, "flag": {"type": "boolean"}},
            "required": ["head"],
            "additionalProperties": False,
        }
        if depth == 3
        else random_schema(rng, depth - 1)
    )  # references count from the root
