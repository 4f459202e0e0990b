"""Schemas whose patterns would take the grammar compiler hours are known before it sees them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from mindserve.chat.constraints.patterns import MAX_MEETING, too_many_meet
from mindserve.chat.constraints.schema import ANY_OBJECT, MAX_KEY_PATTERNS, SchemaUnfit, enforced, suggested


def pattern(number: int) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^.*{number + 100}.*$"}


def nested(num: int) -> dict[str, Any]:
    inner = {"anyOf": [nested(num - 1), {"type": "null"}]} if num else {}
    return {**pattern(num), **inner}


def chained(num: int) -> dict[str, Any]:
    links = {f"d{i}": {**pattern(i), "$ref": f"#/$defs/d{i + 1}"} for i in range(num)}
    return {"$ref": "#/$defs/d0", "$defs": {**links, f"d{num}": {}}}


def in_objects(num: int) -> dict[str, Any]:
    return {"allOf": [{"type": "object", "properties": {"a": pattern(i)}} for i in range(num)]}


def doubled(num: int) -> dict[str, Any]:
    """2 ** num patterns, written with few letters."""
    links = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(num)}
    return {"$ref": "#/$defs/d0", "$defs": {**links, f"d{num}": pattern(0)}}


MEETING = {
    "allOf": lambda num: {"allOf": [pattern(i) for i in range(num)]},
    "formats": lambda num: {"allOf": [{"type": "string", "format": "uuid"}] * num},
    "anyOf beside patterns": lambda num: nested(num - 1),
    "references beside patterns": chained,
    "objects joined": in_objects,
    "in an array": lambda num: {"type": "array", "items": {"allOf": [pattern(i) for i in range(num)]}},
}


@pytest.mark.parametrize("name", MEETING)
def test_patterns_that_meet(name: str) -> None:
    assert not too_many_meet(MEETING[name](MAX_MEETING))
    assert too_many_meet(MEETING[name](MAX_MEETING + 1))
    assert too_many_meet(MEETING[name](200))
    with pytest.raises(SchemaUnfit, match="patterns or formats meet"):
        enforced(MEETING[name](MAX_MEETING + 1))
    assert suggested(MEETING[name](MAX_MEETING + 1)).items() >= ANY_OBJECT.items()


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {f"p{i}": pattern(i) for i in range(300)}},
        {"anyOf": [pattern(i) for i in range(300)]},
        {"type": "object", "patternProperties": {f"^{i}": pattern(i) for i in range(30)}},
        {"properties": {"next": {"$ref": "#"}, "a": pattern(1)}},
        {"allOf": 3, "anyOf": {}, "properties": [], "patternProperties": 1, "$ref": 2, "items": True},
    ],
    ids=["beside one another", "alternatives", "keys", "recursion", "malformed"],
)
def test_patterns_apart(schema: dict[str, Any]) -> None:
    assert not too_many_meet(schema)


@pytest.mark.parametrize("num", [MAX_KEY_PATTERNS, MAX_KEY_PATTERNS + 1])
def test_patterns_of_keys_are_counted_in_all_objects(num: int) -> None:
    objects = [{"type": "object", "patternProperties": {f"^k{i}": {}}} for i in range(num)]
    schema = {"allOf": objects}
    if num > MAX_KEY_PATTERNS:
        with pytest.raises(SchemaUnfit, match="65 patternProperties, 64 can be enforced"):
            enforced(schema)
    else:
        enforced(schema)
    assert ("allOf" in suggested(schema)) == (num == MAX_KEY_PATTERNS)


def test_counting_takes_no_time() -> None:
    began = time.process_time()
    assert too_many_meet(doubled(200))
    assert too_many_meet(nested(250))
    assert too_many_meet(chained(5000))
    assert time.process_time() - began < 5
