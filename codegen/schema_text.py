"""Schemas in words: what a reader of the reference sees of a type, its limits and its sources."""

from __future__ import annotations

import json
from typing import Any

from codegen.document import JsonObject
from codegen.profile.keywords import is_conditional
from codegen.sites import UNION_KEYWORDS

_GROUPED_FROM = 10_000


def type_text(schema: JsonObject) -> str:
    """`integer`, `list of string`, `[ChatMessage](#chatmessage)`; null is told apart by `admits_null`."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    members = [member for key in UNION_KEYWORDS for member in schema.get(key, [])]
    if members:
        return " or ".join(type_text(member) for member in members if member.get("type") != "null")
    kinds = [kind for kind in type_list(schema) if kind != "null"]
    return " or ".join(_kind_text(kind, schema) for kind in kinds) or "any value"


def type_list(schema: JsonObject) -> list[str]:
    """The `type` keyword as a list."""
    kinds = schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else list(kinds)


def _kind_text(kind: str, schema: JsonObject) -> str:
    unit = f" ({schema['x-unit']})" if "x-unit" in schema else ""
    if kind == "array":
        return f"list of {type_text(schema.get('items', {}))}{unit}"
    if kind == "object" and "properties" not in schema:
        values = schema.get("additionalProperties")
        return f"map of {type_text(values)}" if isinstance(values, dict) and "$ref" in values else "map"
    return f"{kind}{unit}"


def admits_null(schema: JsonObject) -> bool:
    """True when null is one of the values."""
    if "null" in type_list(schema):
        return True
    return any(admits_null(member) for key in UNION_KEYWORDS for member in schema.get(key, []))


def bounds_text(schema: JsonObject) -> str:
    """All limits of a value in one line, those of list items and of union members included."""
    members = [member for key in UNION_KEYWORDS for member in schema.get(key, [])]
    parts = [*_number_bounds(schema), *_size_bounds(schema), *_listed(schema)]
    parts += [f"pattern {code(schema['pattern'])}"] if "pattern" in schema else []
    parts += ["not " + ", ".join(_listed(schema["not"]))] if _listed(schema.get("not", {})) else []
    items = bounds_text(schema["items"]) if isinstance(schema.get("items"), dict) else ""
    parts += [f"items: {items}"] if items else []
    for member in members:
        text = bounds_text(member)
        parts += [f"{type_text(member)}: {text}"] if text else []
    return "; ".join(parts)


def _number_bounds(schema: JsonObject) -> list[str]:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    parts = [f"{sign} {number(schema[key])}" for key, sign in signs.items() if key in schema]
    parts += [f"multiple of {number(schema['multipleOf'])}"] if "multipleOf" in schema else []
    return [", ".join(parts)] if parts else []


def _size_bounds(schema: JsonObject) -> list[str]:
    parts = []
    for suffix, unit in (("Length", "character"), ("Items", "item"), ("Properties", "key")):
        least, most = schema.get(f"min{suffix}"), schema.get(f"max{suffix}")
        if least is not None and most is not None:
            parts.append(f"{number(least)} to {number(most)} {unit}s")
        elif least is not None:
            parts.append(f"at least {number(least)} {unit}{'s' if least != 1 else ''}")
        elif most is not None:
            parts.append(f"at most {number(most)} {unit}{'s' if most != 1 else ''}")
    return parts + (["all different"] if schema.get("uniqueItems") else [])


def _listed(schema: JsonObject) -> list[str]:
    if "const" in schema:
        return [code(json.dumps(schema["const"], ensure_ascii=False))]
    values = [value for value in schema.get("enum", []) if value is not None]
    return [", ".join(code(json.dumps(value, ensure_ascii=False)) for value in values)] if values else []


def number(value: float) -> str:
    """As a person writes it: 1024, 4,194,304 and 0.000001."""
    if value != int(value):
        return f"{value:.10f}".rstrip("0")
    return f"{int(value):,}" if abs(value) >= _GROUPED_FROM else str(int(value))


def default_text(schema: JsonObject) -> str:
    """The default; one that depends on something is told in words (`x-default`)."""
    if "x-default" in schema:
        return str(schema["x-default"])
    return code(json.dumps(schema["default"], ensure_ascii=False)) if "default" in schema else ""


def source_text(schema: JsonObject) -> str:
    """`line 44, R6`."""
    lines = _as_list(schema.get("x-doc-ref"))
    parts = [f"line {', '.join(str(line) for line in lines)}"] if lines else []
    return ", ".join([*parts, *_as_list(schema.get("x-interpretation"))])


def _as_list(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def notes_text(schema: JsonObject) -> str:
    """The description with what else is to be known: dialect, withdrawal, rules."""
    parts = [" ".join(str(schema.get("description", "")).split())]
    parts += [f"Dialect `{schema['x-dialect']}` only."] if "x-dialect" in schema else []
    parts += ["Deprecated."] if schema.get("deprecated") else []
    rules = ", ".join(code(rule) for rule in _as_list(schema.get("x-rule")))
    parts += [f"Rules: {rules}."] if rules else []
    return " ".join(part for part in parts if part)


def code(text: str) -> str:
    """`text` as inline code, whatever it holds."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def known_keys(schema: JsonObject) -> JsonObject:
    """Keys that a free-form map describes in its condition: they are checked by rules and kept as they came."""
    keys: JsonObject = schema.get("then", {}).get("properties", {}) if is_free_form(schema) else {}
    return keys


def is_free_form(schema: JsonObject) -> bool:
    """True for a map whose keys are not properties."""
    return "object" in type_list(schema) and "properties" not in schema and not is_conditional(schema)
