"""Profile of the x-rules: unique ids, resolvable fields, messages that can be rendered, no rule without use."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from typing import Any

from codegen.diagnostics import Diagnostic
from codegen.document import JsonObject
from codegen.pointer import join
from codegen.profile.traceability import Vocabulary, check_interpretations
from codegen.sites import UNION_KEYWORDS, component_sites, dereferenced, operations, rule_ids

_REQUIRED = {"id", "message", "field"}
_OPTIONAL = {"doc-ref", "interpretation", "bound", "values", "dialect"}
_PLACEHOLDERS = {"field", "value", "bound", "values"}
_KEBAB_CASE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def check(document: JsonObject, words: Vocabulary) -> Iterator[Diagnostic]:
    """All x-rules of all operations and all references to them."""
    known: set[str] = set()
    for pointer, _, _, operation in operations(document):
        body = _body_schema(document, operation)
        for index, rule in enumerate(operation.get("x-rules", [])):
            place = join(pointer, "x-rules", index)
            if rule.get("id") in known:
                yield Diagnostic(place, "rule", f"the id `{rule['id']}` is used twice")
            known.add(rule.get("id", ""))
            yield from _check_rule(rule, place, words)
            yield from _check_values(rule, place)
            yield from _check_message(rule, place)
            if isinstance(rule.get("field"), str) and not is_field(document, body, rule["field"]):
                yield Diagnostic(join(place, "field"), "rule", f"the request has no field `{rule['field']}`")
    for site in component_sites(document):
        for rule_id in rule_ids(site.schema):
            if rule_id not in known:
                yield Diagnostic(join(site.pointer, "x-rule"), "rule", f"there is no rule `{rule_id}`")


def _check_rule(rule: JsonObject, pointer: str, words: Vocabulary) -> Iterator[Diagnostic]:
    keys = set(rule)
    missing, unknown = _REQUIRED - keys, keys - _REQUIRED - _OPTIONAL
    for name in sorted(missing):
        yield Diagnostic(pointer, "rule", f"`{name}` is missing")
    for name in sorted(unknown):
        yield Diagnostic(join(pointer, name), "rule", f"`{name}` is no key of a rule")
    if rule.get("doc-ref") is None and "interpretation" not in keys:
        yield Diagnostic(pointer, "A12", "a rule names its `doc-ref` or `interpretation`")
    if not _KEBAB_CASE.fullmatch(str(rule.get("id", ""))):
        yield Diagnostic(join(pointer, "id"), "rule", "an id is kebab-case")
    if type(rule.get("doc-ref")) not in (int, type(None)):
        yield Diagnostic(join(pointer, "doc-ref"), "rule", "a document reference is a line number, or null")
    yield from check_interpretations(
        [rule["interpretation"]] if "interpretation" in rule else [], words, join(pointer, "interpretation")
    )


def _check_values(rule: JsonObject, pointer: str) -> Iterator[Diagnostic]:
    bound, values = rule.get("bound", 0), rule.get("values", [])
    if isinstance(bound, bool) or not isinstance(bound, int | float | None):
        yield Diagnostic(join(pointer, "bound"), "rule", "a bound is a number, or null when the request tells it")
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        yield Diagnostic(join(pointer, "values"), "rule", "values are a list of strings")


def _check_message(rule: JsonObject, pointer: str) -> Iterator[Diagnostic]:
    place = join(pointer, "message")
    try:
        names = {name for _, name, _, _ in string.Formatter().parse(str(rule.get("message", ""))) if name is not None}
    except ValueError as error:
        yield Diagnostic(place, "rule", f"not a format string: {error}")
        return
    for name in sorted(names - _PLACEHOLDERS):
        yield Diagnostic(place, "rule", f"`{{{name}}}` is no placeholder")
    for name in sorted(names & {"bound", "values"} - set(rule)):
        yield Diagnostic(place, "rule", f"the message prints `{{{name}}}` but the rule has none")


def _body_schema(document: JsonObject, operation: JsonObject) -> JsonObject:
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    return schema if isinstance(schema, dict) else {}


def is_field(document: JsonObject, schema: JsonObject, path: str) -> bool:
    """True when `path` (`messages[].content[].text`, `messages[i].role`) leads to a field of `schema`."""
    steps = re.findall(r"[^.\[\]]+(?=[.\[]|$)|\[[^\]]*\]", path)
    return _reaches(document, schema, steps) if steps else False


def _reaches(document: JsonObject, schema: Any, steps: list[str]) -> bool:
    schema = dereferenced(document, schema) if isinstance(schema, dict) else {}
    if not steps:
        return True
    nested = [member for key in (*UNION_KEYWORDS, "allOf") for member in schema.get(key, [])]
    if any(_reaches(document, member, steps) for member in nested):
        return True
    step, rest = steps[0], steps[1:]
    if step.startswith("["):
        return "items" in schema and _reaches(document, schema["items"], rest)
    if step in schema.get("properties", {}):
        return _reaches(document, schema["properties"][step], rest)
    extra = schema.get("additionalProperties")
    return bool(extra) and (extra is True or _reaches(document, extra, rest))
