"""Every place of an OpenAPI document where a schema stands, and which way its values travel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from codegen.document import JsonObject
from codegen.pointer import join, resolve

SCHEMAS = "/components/schemas"
METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
UNION_KEYWORDS = ("anyOf", "oneOf")
_NAME_MAPS = ("properties", "headers", "schemas", "parameters", "responses", "content", "paths", "$defs")
_PAYLOADS = ("example", "examples", "default", "const", "enum")


class Position(Enum):
    """How a schema is reached from its parent; decides what the generator makes of it."""

    COMPONENT = auto()
    PROPERTY = auto()
    ITEMS = auto()
    MEMBER = auto()
    MAP_VALUE = auto()
    PART = auto()


@dataclass(frozen=True, slots=True)
class Site:
    """One schema object: `component` is the component it lies in, `name` the property's name (else "")."""

    pointer: str
    schema: JsonObject
    position: Position
    component: str
    parent: JsonObject
    name: str = ""


def component_sites(document: JsonObject) -> Iterator[Site]:
    """All schemas of `components.schemas` that become part of a model, outermost first.

    Conditions (`if`, `then`, `not` ...) are no such schemas: an x-rule stands for them.
    """
    for name, schema in document.get("components", {}).get("schemas", {}).items():
        if isinstance(schema, dict):
            yield from _walk(Site(join(SCHEMAS, name), schema, Position.COMPONENT, name, {}))


def _walk(site: Site) -> Iterator[Site]:
    yield site
    for pointer, schema, position, name in _children(site):
        if isinstance(schema, dict):
            yield from _walk(Site(pointer, schema, position, site.component, site.schema, name))


def _children(site: Site) -> Iterator[tuple[str, Any, Position, str]]:
    schema, pointer = site.schema, site.pointer
    for name, value in _mapping(schema.get("properties")).items():
        yield join(pointer, "properties", name), value, Position.PROPERTY, name
    if "items" in schema:
        yield join(pointer, "items"), schema["items"], Position.ITEMS, ""
    if "additionalProperties" in schema:
        yield join(pointer, "additionalProperties"), schema["additionalProperties"], Position.MAP_VALUE, ""
    for keyword in UNION_KEYWORDS:
        for index, member in enumerate(schema.get(keyword, [])):
            yield join(pointer, keyword, index), member, Position.MEMBER, ""
    for index, part in enumerate(schema.get("allOf", [])):
        yield join(pointer, "allOf", index), part, Position.PART, ""


def _mapping(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def references(value: Any, pointer: str = "") -> Iterator[tuple[str, str]]:
    """(pointer, target) of every `$ref` inside `value`."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from references(item, join(pointer, index))
    elif isinstance(value, dict):
        target = value.get("$ref")
        if isinstance(target, str):
            yield join(pointer, "$ref"), target
        for key, item in value.items():
            yield from references(item, join(pointer, key))


def keywords(value: Any, pointer: str = "", *, holds_names: bool = False) -> Iterator[tuple[str, str, Any]]:
    """(pointer, key, value) of every key that is a keyword: names of fields and payloads in examples are none."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from keywords(item, join(pointer, index))
    elif isinstance(value, dict):
        for key, item in value.items():
            place = join(pointer, key)
            if holds_names:
                yield from keywords(item, place)
                continue
            yield place, key, item
            if not (key.startswith("x-") or key in _PAYLOADS):
                yield from keywords(item, place, holds_names=key in _NAME_MAPS)


def operations(document: JsonObject) -> Iterator[tuple[str, str, str, JsonObject]]:
    """(pointer, path, method, operation) of every operation, in document order."""
    for path, item in _mapping(document.get("paths")).items():
        for method in METHODS:
            if isinstance(_mapping(item).get(method), dict):
                yield join("/paths", path, method), path, method, item[method]


@dataclass(frozen=True, slots=True)
class Directions:
    """Names of the components that clients send and that the server sends; one may be in both."""

    requests: frozenset[str]
    responses: frozenset[str]

    def only_sent_by_server(self, component: str) -> bool:
        """True when no client ever sends `component`: the server is not asked to refuse anything in it."""
        return component in self.responses and component not in self.requests


def directions(document: JsonObject) -> Directions:
    """Follow the references of every operation."""
    requests: set[str] = set()
    responses: set[str] = set()
    for _, _, _, operation in operations(document):
        _reach(document, [operation.get("requestBody"), operation.get("parameters")], requests, set())
        _reach(document, operation.get("responses"), responses, set())
    return Directions(frozenset(requests), frozenset(responses))


def _reach(document: JsonObject, value: Any, names: set[str], seen: set[str]) -> None:
    for _, target in references(value):
        if target in seen:
            continue
        seen.add(target)
        if target.startswith(f"#{SCHEMAS}/"):
            names.add(target.rsplit("/", 1)[-1])
        try:
            _reach(document, resolve(document, target), names, seen)
        except KeyError:
            continue  # the profile reports references that lead nowhere


def dereferenced(document: JsonObject, schema: JsonObject) -> JsonObject:
    """`schema`, or what its `$ref` chain ends at; `{}` for a chain that leads nowhere or in a circle."""
    for _ in range(32):
        target = schema.get("$ref")
        if not isinstance(target, str):
            return schema
        try:
            schema = _mapping(resolve(document, target))
        except KeyError:
            break
    return {}


def rule_ids(schema: JsonObject) -> list[str]:
    """Ids of the x-rules that stand for what the models cannot carry of `schema`."""
    named = schema.get("x-rule", [])
    return [named] if isinstance(named, str) else list(named)
