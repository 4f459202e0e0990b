"""Puts the fields of generated structs into the order of the spec's properties: they are encoded in that order."""

from __future__ import annotations

import ast

from codegen.document import JsonObject
from codegen.profile.keywords import is_conditional


def in_property_order(source: str, document: JsonObject) -> str:
    """`source` with each class's fields sorted as its component lists them (structs are keyword-only, so they may be).

    The generator writes required fields first; the wire order of an answer is the spec's.
    """
    schemas = document.get("components", {}).get("schemas", {})
    lines = source.splitlines(keepends=True)
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name in schemas:
            order = {name: index for index, name in enumerate(_own_properties(schemas[node.name]))}
            _sort_fields(lines, node, order)
    return "".join(lines)


def _own_properties(schema: JsonObject) -> list[str]:
    names = list(schema.get("properties", {}))
    for part in schema.get("allOf", []):
        if "$ref" not in part and not is_conditional(part):
            names += _own_properties(part)
    return names


def _sort_fields(lines: list[str], node: ast.ClassDef, order: dict[str, int]) -> None:
    fields = [item for item in node.body if isinstance(item, ast.AnnAssign)]
    if not fields:
        return
    start, end = fields[0].lineno - 1, fields[-1].end_lineno
    chunks = {item: lines[item.lineno - 1 : item.end_lineno] for item in fields}
    ordered = sorted(fields, key=lambda item: order[_wire_name(item)])
    lines[start:end] = [line for item in ordered for line in chunks[item]]


def _wire_name(node: ast.AnnAssign) -> str:
    if isinstance(node.value, ast.Call):
        for keyword in node.value.keywords:
            if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
                return str(keyword.value.value)
    assert isinstance(node.target, ast.Name)
    return node.target.id
