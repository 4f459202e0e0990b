"""The authoring profile of `spec/config.schema.yaml`: what pydantic models carry, and a text for every key."""

from __future__ import annotations

import re
from collections.abc import Iterator

from codegen.diagnostics import Diagnostic
from codegen.document import Document, JsonObject
from codegen.pointer import join, resolve
from codegen.profile.structure import check_schema
from codegen.profile.values import check_default
from codegen.sites import references

DEFINITIONS = "$defs"
_CARRIED = {
    *("type", "properties", "required", "items", "$ref", "enum", "const", "default", "description"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "pattern", "minItems", "maxItems", "additionalProperties"),
}
_ROOT_ONLY = {"$schema", "$id", "title", DEFINITIONS}


def lint(document: Document) -> list[Diagnostic]:
    """Every fault of the schema of config.json."""
    data = document.data
    broken = [*check_schema(data, "")]
    if broken:
        return sorted(set(broken))
    comments = "\n".join(re.findall(r"^\s*#.*", document.text, re.MULTILINE))
    extensions = set(re.findall(r"\bx-[a-z-]+", comments))
    faults = [*_check_keywords({key: data[key] for key in data if key not in _ROOT_ONLY}, "", extensions)]
    for pointer, schema in objects(data).items():
        faults += _check_keywords(schema, pointer, extensions) if pointer else []
        for name, field in schema["properties"].items():
            faults += _check_field(data, field, join(pointer, "properties", name), extensions)
    for pointer, target in references(data):
        try:
            resolve(data, target)
        except KeyError:
            faults.append(Diagnostic(pointer, "reference", f"`{target}` leads nowhere"))
    return sorted(set(faults))


def objects(data: JsonObject) -> dict[str, JsonObject]:
    """Pointer -> schema of every object of the file: the root and its definitions, in the file's order."""
    found = {"": data} | {join("", DEFINITIONS, name): schema for name, schema in data.get(DEFINITIONS, {}).items()}
    return {pointer: schema for pointer, schema in found.items() if schema.get("properties")}


def _check_keywords(schema: JsonObject, pointer: str, extensions: set[str]) -> Iterator[Diagnostic]:
    for key in schema:
        if key.startswith("x-") and key not in extensions:
            yield Diagnostic(join(pointer, key), "extension", f"`{key}` is not described at the top of the file")
        elif not key.startswith("x-") and key not in _CARRIED:
            yield Diagnostic(join(pointer, key), "lost", f"the models do not carry `{key}`")


def _check_field(data: JsonObject, field: JsonObject, pointer: str, extensions: set[str]) -> Iterator[Diagnostic]:
    yield from _check_keywords(field, pointer, extensions)
    if "properties" in field:
        yield Diagnostic(pointer, "A1", f"a nested object is a definition of its own, under {DEFINITIONS}")
    if "description" not in field and "$ref" not in field:
        yield Diagnostic(pointer, "description", "a key says what it is for")
    if "items" in field:
        yield from _check_keywords(field["items"], join(pointer, "items"), extensions)
    if "$ref" not in (values := field.get("additionalProperties", {"$ref": ""})):
        yield Diagnostic(join(pointer, "additionalProperties"), "A1", f"values of a map are a definition, not {values}")
    if "default" in field:
        schema = {key: value for key, value in field.items() if key != "default"}
        root = {**schema, DEFINITIONS: data.get(DEFINITIONS, {})}
        yield from check_default(root, field["default"], join(pointer, "default"))
