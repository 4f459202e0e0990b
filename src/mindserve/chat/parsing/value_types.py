"""Which JSON types a schema lets a value have, for models that write values without quotes."""

from __future__ import annotations

from typing import Any, Final

from mindserve.chat.constraints.references import target_of

ANY_TYPE: Final = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))
MAX_PARTS: Final = 1024
"""Parts of a schema that are looked at: references may lead in circles, and this is the event loop's time."""
_MAX_DEPTH: Final = 32


def json_type(value: Any) -> str:
    """The name that JSON Schema has for the type of a decoded value."""
    if isinstance(value, bool):
        return "boolean"
    names = {type(None): "null", int: "integer", float: "number", str: "string", list: "array"}
    return names.get(type(value), "object")


def types_of(schema: object, root: object) -> frozenset[str]:
    """``schema`` is a part of ``root``; all types, where it does not tell or is too large to be looked through."""
    return _Reader(root).types_of(schema, depth=0)


class _Reader:
    def __init__(self, root: object) -> None:
        self._root = root
        self._num_parts = 0

    def types_of(self, schema: object, *, depth: int) -> frozenset[str]:
        self._num_parts += 1
        if not isinstance(schema, dict) or depth > _MAX_DEPTH or self._num_parts > MAX_PARTS:
            return ANY_TYPE
        types = _own_types(schema)
        for key in ("anyOf", "oneOf"):
            if parts := _list_of(schema.get(key)):
                types &= self._any_of(parts, depth=depth + 1)
        for part in _list_of(schema.get("allOf"))[:MAX_PARTS]:
            types &= self.types_of(part, depth=depth + 1)
        if isinstance(schema.get("$ref"), str):
            types &= self.types_of(target_of(self._root, schema["$ref"]), depth=depth + 1)
        return types

    def _any_of(self, parts: list[Any], *, depth: int) -> frozenset[str]:
        types: frozenset[str] = frozenset()
        for part in parts:
            types |= self.types_of(part, depth=depth)
            if types >= ANY_TYPE:
                break
        return types


def _own_types(schema: dict[str, Any]) -> frozenset[str]:
    types = ANY_TYPE
    named = schema.get("type")
    if isinstance(named, str | list):
        types = frozenset(one for one in ([named] if isinstance(named, str) else named) if isinstance(one, str))
    if "number" in types:
        types |= {"integer"}
    if "const" in schema:
        types &= {json_type(schema["const"])}
    if choices := _list_of(schema.get("enum")):
        types &= {json_type(one) for one in choices}
    return types


def _list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
