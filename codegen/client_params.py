"""The parameters of the SDK's `create` as type hints: what a field of a request may be in Python.

An object is a model or a mapping of the same keys, a list is any sequence. Which value is right is decided by the
models when the request is made; these types are for editors and type checkers.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from codegen.document import JsonObject
from codegen.render import render
from codegen.sites import operations

_PER_CALL: Final = frozenset({"stream"})
"""Arguments of their own: they decide what comes back."""
_SCALARS: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_ANSWERED_AS: Final = {"ChatMessage": "AssistantMessage"}
"""What a server sends and a later request gives back."""
_TEXT_WIDTH: Final = 112


@dataclass(frozen=True, slots=True)
class Parameter:
    """One key of a dictionary of parameters; `lines` describe it."""

    name: str
    type: str
    lines: list[str]


def generate(first: JsonObject, second: JsonObject) -> str:
    """The source of the parameters module of both dialects' views, without header: those of `second` have all."""
    of_first, of_second = first["components"]["schemas"], second["components"]["schemas"]
    bodies = dict.fromkeys(_bodies(second))
    return render(
        "client_params.py.j2",
        bodies={name.removesuffix("Request"): _parameters(name, of_first, of_second) for name in bodies},
        components=_components([of_second[name].get("properties", {}) for name in bodies], of_first, of_second),
    )


def _bodies(document: JsonObject) -> Iterator[str]:
    """Components that are the body of a request."""
    for _, _, _, operation in operations(document):
        content = operation.get("requestBody", {}).get("content", {})
        yield from (_name(media["schema"]["$ref"]) for media in content.values())


def _name(reference: str) -> str:
    return reference.rsplit("/", 1)[-1]


def _parameters(body: str, of_first: JsonObject, of_second: JsonObject) -> list[Parameter]:
    properties, required = of_second[body].get("properties", {}), of_second[body].get("required", [])
    shared = of_first[body].get("properties", {})
    return [
        Parameter(
            name,
            f"Required[{_type(schema)}]" if name in required else _type(schema),
            _lines(schema.get("description", ""), in_both=name in shared),
        )
        for name, schema in properties.items()
        if name not in _PER_CALL
    ]


def _lines(text: str, *, in_both: bool) -> list[str]:
    return textwrap.wrap(text if in_both else f"Only in the openai dialect. {text}", _TEXT_WIDTH)


def _components(value: Any, of_first: JsonObject, of_second: JsonObject) -> dict[str, str]:
    """Component -> what stands for it among parameters."""
    found: dict[str, str] = {}
    for name in _references(value):
        if "properties" not in of_second[name]:
            found[name] = _type(of_second[name])
            continue
        answered = _ANSWERED_AS.get(name)
        names = [f"{'models' if name in of_first else 'openai_models'}.{name}"]
        names += [f"models.{answered}", f"openai_models.{answered}"] if answered in of_second else []
        found[name] = " | ".join([*names, "Mapping[str, Any]"])
    return dict(sorted(found.items()))


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _references(item)
    elif isinstance(value, dict):
        if "$ref" in value:
            yield _name(value["$ref"])
        for item in value.values():
            yield from _references(item)


def _type(schema: JsonObject) -> str:
    if "$ref" in schema:
        return f"{_name(schema['$ref'])}Param"
    members = schema.get("anyOf", schema.get("oneOf"))
    if members is not None:
        return " | ".join(_type(member) for member in members)
    if "enum" in schema:
        return f"Literal[{', '.join(repr(value) for value in schema['enum'])}]"
    kinds = schema.get("type", "any")
    return " | ".join(_of_kind(kind, schema) for kind in ([kinds] if isinstance(kinds, str) else kinds))


def _of_kind(kind: str, schema: JsonObject) -> str:
    if kind == "array":
        return f"Sequence[{_type(schema.get('items', {}))}]"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"Mapping[str, {_type(values) if isinstance(values, dict) else 'Any'}]"
    return _SCALARS.get(kind, "Any")
