"""Schemas that can be finished, and those that cannot."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest

from mindserve.chat.constraints.termination import _Search, is_endless

NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["next"]}


def defined(node: Any) -> dict[str, Any]:
    return {"$ref": "#/$defs/node", "$defs": {"node": node}}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        defined(NODE),
        defined({"anyOf": [NODE, {"$ref": "#/$defs/node"}]}),
        defined({"allOf": [{"type": "string"}, NODE]}),
        {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
        {"type": "array", "prefixItems": [{"type": "string"}, {"$ref": "#"}], "minItems": 2},
        {
            "$ref": "#/$defs/a",
            "$defs": {
                "a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/b"}}, "required": ["b"]},
                "b": {"type": "array", "items": {"$ref": "#/$defs/a"}, "minItems": 1},
            },
        },
    ],
)
def test_endless(schema: dict[str, Any]) -> None:
    assert is_endless(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {"a": {"$ref": "#"}}},
        {"type": "array", "items": {"$ref": "#"}},
        {"type": "array", "prefixItems": [{"type": "string"}], "items": {"$ref": "#"}, "minItems": 1},
        defined({**NODE, "required": []}),
        defined({"anyOf": [NODE, {"type": "null"}]}),
        defined({**NODE, "type": ["object", "null"]}),
        {"$ref": "https://elsewhere.example/schema"},
        {"$ref": "#/nowhere"},
        {"properties": {"a~b/c": {"type": "string"}, "d": {"$ref": "#/properties/a~0b~1c"}}, "required": ["d"]},
        {"required": "malformed", "properties": 3, "anyOf": {}, "type": "object"},
    ],
)
def test_finite(schema: dict[str, Any]) -> None:
    assert not is_endless(schema)


@pytest.mark.parametrize("name", ["n{0:05}", "n{1:05}"], ids=["forth", "back"])
@pytest.mark.parametrize("ends", [True, False])
def test_looks_at_each_link_of_a_chain_a_few_times(name: str, monkeypatch: pytest.MonkeyPatch, *, ends: bool) -> None:
    """Whatever the order in which references are found."""
    num_looks = 0
    look = _Search._ends_as

    def counted(*args: Any) -> bool:
        nonlocal num_looks
        num_looks += 1
        return look(*args)

    monkeypatch.setattr(_Search, "_ends_as", counted)
    links = [name.format(i, 99_999 - i) for i in range(1001)]
    chain = {
        link: {"type": "object", "properties": {"x": {"$ref": f"#/$defs/{after}"}}, "required": ["x"]}
        for link, after in pairwise(links)
    }
    last = {"type": "string"} if ends else {"$ref": f"#/$defs/{links[0]}"}
    assert is_endless({"$ref": f"#/$defs/{links[0]}", "$defs": {**chain, links[-1]: last}}) is not ends
    assert num_looks < 4000


def test_long_chains_and_deep_nests_take_no_time() -> None:
    chain = {f"n{i}": {"type": "array", "items": {"$ref": f"#/$defs/n{i + 1}"}, "minItems": 1} for i in range(300)}
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(5000):
        deep = {"items": deep}
    began = time.process_time()
    assert not is_endless({"$ref": "#/$defs/n0", "$defs": {**chain, "n300": {"type": "string"}}})
    assert not is_endless(deep)
    assert time.process_time() - began < 5
