"""Profile of objects and arrays: what becomes a class, what becomes a dict, what is required."""

from __future__ import annotations

from collections.abc import Iterator

from codegen.diagnostics import Diagnostic
from codegen.pointer import join
from codegen.profile.keywords import is_conditional
from codegen.sites import UNION_KEYWORDS, Position, Site, rule_ids

_TYPED_BY = ("type", "$ref", "const", "enum", "allOf", *UNION_KEYWORDS)


def types_of(site: Site) -> list[str]:
    """The `type` keyword as a list."""
    declared = site.schema.get("type", [])
    return [declared] if isinstance(declared, str) else list(declared)


def check(site: Site, *, sent_by_server: bool) -> Iterator[Diagnostic]:
    """A1, A5, A7, `required` names and free-form components."""
    if is_conditional(site.schema):
        return
    yield from _check_object(site, sent_by_server=sent_by_server)
    yield from _check_required(site)
    if "array" in types_of(site) and "items" not in site.schema:
        yield Diagnostic(site.pointer, "type", "an array says what its `items` are (`items: {}` for anything)")
    # `{}` on purpose means any JSON value; a schema that says something but no type was meant to have one.
    if not any(key in site.schema for key in _TYPED_BY) and {"properties", "items", "required"} & set(site.schema):
        yield Diagnostic(site.pointer, "type", "the schema has no `type`")


def _check_object(site: Site, *, sent_by_server: bool) -> Iterator[Diagnostic]:
    schema = site.schema
    has_properties = bool(schema.get("properties"))
    extra = schema.get("additionalProperties")
    if has_properties and site.position not in (Position.COMPONENT, Position.PART):
        yield Diagnostic(site.pointer, "A1", "a nested object with properties is a component of its own")
    if has_properties and (extra is True or isinstance(extra, dict)):
        message = "a free-form map has no `properties`: unknown keys of an object with properties are dropped"
        yield Diagnostic(join(site.pointer, "additionalProperties"), "A5", message)
    if extra is False and not (sent_by_server or rule_ids(schema)):
        message = "unknown keys are not refused by the models: name the `x-rule` that refuses them"
        yield Diagnostic(join(site.pointer, "additionalProperties"), "A7", message)
    is_free_form = "object" in types_of(site) and not has_properties and "allOf" not in schema
    if is_free_form and site.position is Position.COMPONENT and not isinstance(extra, dict):
        message = "a free-form component becomes a class that drops every key: write the map where it is used"
        yield Diagnostic(site.pointer, "A5", message)
    if isinstance(extra, dict) and extra and {"null"} & set(types_of(site)):
        message = "a map that may be null loses the type of its values: make it a component, in an `anyOf` with null"
        yield Diagnostic(join(site.pointer, "additionalProperties"), "lost", message)
    if has_properties and {"minProperties", "maxProperties"} & set(schema) and not rule_ids(schema):
        yield Diagnostic(site.pointer, "lost", "the number of properties of an object with properties is not checked")


def _check_required(site: Site) -> Iterator[Diagnostic]:
    required = site.schema.get("required", [])
    for index, name in enumerate(required):
        pointer = join(site.pointer, "required", index)
        if name not in site.schema.get("properties", {}):
            yield Diagnostic(pointer, "required", f"`{name}` is not among the properties beside it")
