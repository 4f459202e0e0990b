"""Profile of scalar constraints: bounds, formats, patterns, enumerations, defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator

import jsonschema_rs

from codegen.diagnostics import Diagnostic
from codegen.document import JsonObject
from codegen.pointer import join
from codegen.profile.shapes import types_of
from codegen.sites import Site, rule_ids

_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
# Width hints: they constrain nothing by themselves, and JSON Schema tools read them as annotations.
_FORMATS = frozenset({"int32", "int64", "uint32", "uint64", "float", "double", "password"})


def check(site: Site, document: JsonObject, *, sent_by_server: bool, in_response: bool) -> Iterator[Diagnostic]:
    """A2 (null in enums), A6, A10, formats and patterns."""
    yield from _check_bounds(site, sent_by_server=sent_by_server)
    yield from _check_text(site, sent_by_server=sent_by_server)
    listed = site.schema.get("enum", [site.schema.get("const")] if "const" in site.schema else None)
    if listed is not None and "null" in types_of(site) and None not in listed:
        yield Diagnostic(site.pointer, "A2", "the type admits null but the listed values do not: add null to `enum`")
    if "default" in site.schema:
        yield from _check_site_default(site, document, in_response=in_response)


def _check_bounds(site: Site, *, sent_by_server: bool) -> Iterator[Diagnostic]:
    schema = site.schema
    for keyword in _BOUNDS:
        is_lost = keyword in schema and not _INT64_MIN <= schema[keyword] <= _INT64_MAX
        if is_lost and "integer" in types_of(site) and not rule_ids(schema):
            message = "an integer bound beyond int64 is lost: name the `x-rule` that enforces it"
            yield Diagnostic(join(site.pointer, keyword), "A6", message)
    if "multipleOf" in schema and "number" in types_of(site) and not (sent_by_server or rule_ids(schema)):
        yield Diagnostic(join(site.pointer, "multipleOf"), "lost", "multipleOf of a float is lost: name the `x-rule`")


def _check_text(site: Site, *, sent_by_server: bool) -> Iterator[Diagnostic]:
    text_format = site.schema.get("format")
    is_lost = text_format in ("uri", "email", "hostname", "ipv4", "ipv6")
    backed = is_lost and (sent_by_server or rule_ids(site.schema))
    if text_format is not None and text_format not in _FORMATS and not backed:
        message = "is not checked by the models: name the `x-rule`" if is_lost else "changes the type of the field"
        yield Diagnostic(join(site.pointer, "format"), "lost", f"format `{text_format}` {message}")
    pattern = site.schema.get("pattern")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            yield Diagnostic(join(site.pointer, "pattern"), "pattern", f"not a Python pattern: {error}")


def _check_site_default(site: Site, document: JsonObject, *, in_response: bool) -> Iterator[Diagnostic]:
    pointer = join(site.pointer, "default")
    if in_response:
        yield Diagnostic(pointer, "A10", "a response has no defaults: the server always says what it means")
    schema = {key: value for key, value in site.schema.items() if key != "default"}
    yield from check_default({**schema, "components": document.get("components", {})}, site.schema["default"], pointer)


def check_default(schema: JsonObject, default: object, pointer: str) -> Iterator[Diagnostic]:
    """A default against its own schema, which stands with all that it refers to."""
    try:
        is_valid = jsonschema_rs.Draft202012Validator(schema).is_valid(default)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError):
        return  # the schema itself is at fault, which is told where the fault lies
    if not is_valid:
        yield Diagnostic(pointer, "default", "the default is not valid for its own schema")
