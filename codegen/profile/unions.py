"""Profile of unions: what msgspec can tell apart, and where their constraints stand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from codegen.diagnostics import Diagnostic
from codegen.document import JsonObject
from codegen.pointer import join
from codegen.profile.keywords import CONSTRAINTS
from codegen.sites import UNION_KEYWORDS, Site, dereferenced

_KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A member of a union after following references and nested unions."""

    kind: str
    schema: JsonObject

    @property
    def is_constrained(self) -> bool:
        return bool(CONSTRAINTS & set(self.schema) - {"format"})


def check(site: Site, document: JsonObject) -> Iterator[Diagnostic]:
    """A2 (null members), A3 (tags), A4 (constraints on members), one constrained member per JSON kind."""
    schema = site.schema
    keyword = next((key for key in UNION_KEYWORDS if key in schema), None)
    if keyword is None:
        yield from _check_type_list(site)
        return
    beside = sorted((CONSTRAINTS | {"type", "properties", "items", "required"}) & set(schema))
    if beside or all(key in schema for key in UNION_KEYWORDS):
        message = f"{', '.join(beside) or 'anyOf and oneOf'} beside a union: constraints stand on its members"
        yield Diagnostic(site.pointer, "A4", message)
    members = schema[keyword]
    if len(members) == 2 and {"type": "null"} in members and any("type" in member for member in members[:1]):
        yield Diagnostic(join(site.pointer, keyword), "A2", "nullability is written in the type: [T, 'null']")
    leaves = [leaf for member in members for leaf in _leaves(member, document)]
    yield from _check_kinds(join(site.pointer, keyword), leaves)
    yield from _check_tags(site, keyword, leaves, document)


def _check_type_list(site: Site) -> Iterator[Diagnostic]:
    declared = site.schema.get("type")
    kinds = [kind for kind in declared if kind != "null"] if isinstance(declared, list) else []
    beside = sorted((CONSTRAINTS - {"enum", "const"}) & set(site.schema))
    if len(kinds) > 1 and beside:
        message = f"{', '.join(beside)} on a union of types: write anyOf and put it on the member it is about"
        yield Diagnostic(site.pointer, "A4", message)


def _leaves(member: JsonObject, document: JsonObject) -> Iterator[_Leaf]:
    schema = dereferenced(document, member)
    keyword = next((key for key in UNION_KEYWORDS if key in schema), None)
    if keyword is not None:
        for nested in schema[keyword]:
            yield from _leaves(nested, document)
        return
    declared = schema.get("type")
    kinds = [declared] if isinstance(declared, str) else declared
    if kinds is None:
        kinds = sorted({_KINDS.get(type(value), "any") for value in _listed_values(schema)}) or ["any"]
        kinds = ["object"] if "properties" in schema or "allOf" in schema else kinds
    for kind in kinds:
        yield _Leaf(kind, schema)


def _listed_values(schema: JsonObject) -> list[object]:
    return [schema["const"]] if "const" in schema else schema.get("enum", [])


def _check_kinds(pointer: str, leaves: list[_Leaf]) -> Iterator[Diagnostic]:
    of_kind = {kind: [leaf for leaf in leaves if leaf.kind == kind] for kind in ("any", "array", "string")}
    if of_kind["any"]:
        yield Diagnostic(pointer, "union", "a member without a type accepts everything: the others are lost")
    if len(of_kind["array"]) > 1:
        yield Diagnostic(pointer, "union", "two array members cannot be told apart")
    if len(of_kind["string"]) > 1 and any(leaf.is_constrained for leaf in of_kind["string"]):
        yield Diagnostic(pointer, "union", "of several string members none can carry constraints, an enum included")
    kinds = {leaf.kind for leaf in leaves}
    numeric = [leaf for leaf in leaves if leaf.kind in ("integer", "number")]
    if {"integer", "number"} <= kinds and any(leaf.is_constrained for leaf in numeric):
        yield Diagnostic(pointer, "union", "in a union of integer and number the bounds are lost")


def _check_tags(site: Site, keyword: str, leaves: list[_Leaf], document: JsonObject) -> Iterator[Diagnostic]:
    objects = [leaf.schema for leaf in leaves if leaf.kind == "object"]
    if len(objects) < 2:
        return
    pointer = join(site.pointer, keyword)
    discriminator = site.schema.get("discriminator")
    if discriminator is None:
        nested = [dereferenced(document, member) for member in site.schema[keyword]]
        discriminator = next((schema["discriminator"] for schema in nested if "discriminator" in schema), None)
    if not isinstance(discriminator, dict):
        yield Diagnostic(pointer, "A3", "objects in a union need a `discriminator`")
        return
    name = discriminator.get("propertyName")
    tags = [_tag(schema, name) for schema in objects]
    if None in tags:
        yield Diagnostic(pointer, "A3", f"every member needs a required `{name}` with a string `const`")
    elif len(set(tags)) < len(tags):
        yield Diagnostic(pointer, "A3", f"two members have the same `{name}`")
    elif set(discriminator.get("mapping", tags)) != set(tags):
        yield Diagnostic(pointer, "A3", f"`discriminator.mapping` and the constants of `{name}` differ")


def _tag(schema: JsonObject, name: object) -> str | None:
    tag = schema.get("properties", {}).get(name, {}).get("const")
    return tag if isinstance(tag, str) and name in schema.get("required", []) else None
