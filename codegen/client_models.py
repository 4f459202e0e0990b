"""pydantic models for the SDK, made by datamodel-code-generator: what clients send with all its bounds, what the server
sends with its types alone. A bound on an answer would help nobody who reads it, and fail on the first wider one."""

from __future__ import annotations

import ast

from codegen import differing_models
from codegen.datamodel import PYDANTIC_FROM_OPENAPI, run
from codegen.diagnostics import Diagnostic, SpecRefused
from codegen.document import JsonObject
from codegen.model_view import models_document
from codegen.sites import SCHEMAS, directions

_BOUNDS = {
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern",
    "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
}  # fmt: skip


def generate(document: JsonObject) -> str:
    """The source of the models of one dialect, without header; a constraint that is dropped is refused."""
    source = _source(document)
    return f"{source}\n\n{_exports(source)}"


def generate_differing(first: JsonObject, second: JsonObject, *, first_module: str) -> str:
    """The source of the models of `second` that are not those of `first`, which `first_module` has."""
    shared = differing_models.Module(first_module, _source(first))
    source = differing_models.differing(shared, _source(second), requests=directions(second).requests)
    return f"{source}\n\n{_exports(source)}"


def _source(document: JsonObject) -> str:
    source, complaints = run(models_document(_without_answer_bounds(document), texts=True), PYDANTIC_FROM_OPENAPI)
    if complaints:
        raise SpecRefused([Diagnostic(SCHEMAS, "generator", text) for text in complaints])
    return source


def _without_answer_bounds(document: JsonObject) -> JsonObject:
    ways = directions(document)
    components = document.get("components", {})
    schemas = {
        name: _unbounded(schema) if ways.only_sent_by_server(name) else schema
        for name, schema in components.get("schemas", {}).items()
    }
    return {**document, "components": {**components, "schemas": schemas}}


def _unbounded(schema: JsonObject) -> JsonObject:
    view: JsonObject = {}
    for key, value in schema.items():
        if key == "properties":
            view[key] = {name: _unbounded(item) for name, item in value.items()}
        elif key in ("anyOf", "oneOf", "allOf"):
            view[key] = [_unbounded(item) for item in value]
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            view[key] = _unbounded(value)
        elif key not in _BOUNDS:
            view[key] = value
    return view


def _exports(source: str) -> str:
    """`__all__`: the classes and what is imported of the other dialect's."""
    names = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.ImportFrom) and "_generated" in (node.module or ""):
            names += [alias.name for alias in node.names]
    lines = "".join(f"    {name!r},\n" for name in sorted(names))
    return f"__all__ = [\n{lines}]\n"
