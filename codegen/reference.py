"""The readable reference: every field, rule, answer and endpoint of the contract, in the document's order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from codegen.constants import Constant, read_constants
from codegen.document import JsonObject
from codegen.operations import Operation, read_operations
from codegen.pointer import resolve
from codegen.render import render
from codegen.rules import Rule, read_rules
from codegen.schema_text import (
    admits_null,
    bounds_text,
    default_text,
    known_keys,
    notes_text,
    number,
    source_text,
    type_text,
)
from codegen.sites import SCHEMAS, UNION_KEYWORDS, dereferenced, operations, references


@dataclass(frozen=True, slots=True)
class Field:
    """A row of a field table; every cell is text."""

    name: str
    type: str
    presence: str
    default: str
    bounds: str
    null: str
    notes: str
    source: str


@dataclass(frozen=True, slots=True)
class Component:
    """A named schema: its fields, or for a union its members."""

    name: str
    description: str
    source: str
    fields: tuple[Field, ...]
    members: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A status of an operation: `body` tells media types with their schemas."""

    status: str
    body: str
    headers: str
    notes: str
    source: str


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An operation with everything that belongs to it alone."""

    operation: Operation
    source: str
    parameters: tuple[Field, ...]
    answers: tuple[Answer, ...]
    rules: tuple[tuple[str, ...], ...]
    constants: tuple[tuple[str, ...], ...]
    events: tuple[tuple[str, ...], ...]
    request_components: tuple[Component, ...]
    answer_components: tuple[Component, ...]

    @property
    def statuses(self) -> str:
        """All of them in one cell."""
        return " ".join(answer.status for answer in self.answers)


def generate(document: JsonObject, *, dialect: str | None = None) -> str:
    """The Markdown text, without header; `dialect`: `document` is its view."""
    endpoints = []
    shown: set[str] = set()
    rules = {rule.id: rule for rule in read_rules(document)}
    for operation, (_, _, _, item) in zip(read_operations(document), operations(document), strict=True):
        endpoints.append(_endpoint(document, operation, item, rules, shown))
    info = document["info"]
    text = render(
        "reference.md.j2",
        title=info["title"] if dialect is None else f"{info['title']}, dialect {dialect}",
        description=info.get("description", "").strip(),
        endpoints=endpoints,
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _endpoint(
    document: JsonObject, operation: Operation, item: JsonObject, rules: dict[str, Rule], shown: set[str]
) -> Endpoint:
    parameters = [dereferenced(document, parameter) for parameter in item.get("parameters", [])]
    return Endpoint(
        operation=operation,
        source=source_text(item),
        parameters=tuple(_parameter(parameter) for parameter in parameters),
        request_components=tuple(_components(document, item.get("requestBody"), shown)),
        answers=tuple(
            _answer(document, status, dereferenced(document, value)) for status, value in item["responses"].items()
        ),
        rules=tuple(_rule_row(rules[rule["id"]]) for rule in item.get("x-rules", [])),
        constants=tuple(_constant_row(constant) for constant in read_constants(item)),
        events=tuple(_event_rows(document, item["responses"])),
        answer_components=tuple(_components(document, item["responses"], shown)),
    )


def _components(document: JsonObject, value: Any, shown: set[str]) -> Iterator[Component]:
    """Components that `value` reaches, outer ones first, each once in the whole reference."""
    waiting = [target for _, target in references(value)]
    while waiting:
        target = waiting.pop(0)
        if target in shown:
            continue
        shown.add(target)
        schema = resolve(document, target)
        if target.startswith(f"#{SCHEMAS}/"):
            yield _component(target.rsplit("/", 1)[-1], schema)
        waiting = [found for _, found in references(schema)] + waiting


def _component(name: str, schema: JsonObject) -> Component:
    members = [member for key in UNION_KEYWORDS for member in schema.get(key, [])]
    bases = " and ".join(type_text(part) for part in schema.get("allOf", []) if "$ref" in part)
    notes = notes_text({key: value for key, value in schema.items() if key != "x-rule"})
    return Component(
        name=name,
        description=f"{notes} It has the fields of {bases} too.".strip() if bases else notes,
        source=source_text(schema),
        fields=tuple(_fields(schema)),
        members=" or ".join(type_text(member) for member in members),
    )


def _fields(schema: JsonObject, prefix: str = "") -> Iterator[Field]:
    parts = [schema, *(part for part in schema.get("allOf", []) if "properties" in part)]
    for part in parts:
        for name, field in part.get("properties", {}).items():
            yield _field(f"{prefix}{name}", field, is_required=name in part.get("required", []))
            for key, value in known_keys(field).items():
                yield _field(f"{prefix}{name}.{key}", value, is_required=False)


def _field(name: str, schema: JsonObject, *, is_required: bool) -> Field:
    cells = (
        f"`{name}`",
        type_text(schema),
        "required" if is_required else "optional",
        default_text(schema),
        bounds_text(schema),
        "yes" if admits_null(schema) else "no",
        notes_text(schema),
        source_text(schema),
    )
    return Field(*(cell.replace("|", "\\|") for cell in cells))


def _parameter(parameter: JsonObject) -> Field:
    schema = {**parameter.get("schema", {}), "description": parameter.get("description", "")}
    name = f"{parameter['name']} ({parameter['in']})"
    return _field(name, schema, is_required=parameter.get("required", False))


def _answer(document: JsonObject, status: str, response: JsonObject) -> Answer:
    bodies = [_body_text(kind, media) for kind, media in response.get("content", {}).items()]
    headers = [f"`{name}`" for name in response.get("headers", {})]
    return Answer(status, "<br>".join(bodies), ", ".join(headers), notes_text(response), source_text(response))


def _body_text(kind: str, media: JsonObject) -> str:
    described = "the events below" if "x-stream" in media else type_text(media.get("schema", {}))
    return f"`{kind}`: {described}"


def _rule_row(rule: Rule) -> tuple[str, ...]:
    source = {"x-doc-ref": rule.doc_ref, "x-interpretation": rule.interpretation}
    limit = number(rule.bound) if rule.bound is not None else ", ".join(f"`{value}`" for value in rule.values)
    return (f"`{rule.id}`", f"`{rule.field}`", rule.message.replace("|", "\\|"), limit, source_text(source))


def _constant_row(constant: Constant) -> tuple[str, ...]:
    source = {"x-doc-ref": constant.doc_ref, "x-interpretation": constant.interpretation}
    return (f"`{constant.id}`", number(constant.value), constant.description.replace("|", "\\|"), source_text(source))


def _event_rows(document: JsonObject, responses: JsonObject) -> Iterator[tuple[str, ...]]:
    for response in responses.values():
        for media in dereferenced(document, response).get("content", {}).values():
            for event in media.get("x-stream", {}).get("events", []):
                schema = event.get("schema")
                data = f"[{schema}](#{schema.lower()})" if schema else f"`{event.get('text', '')}`"
                yield (event["name"], data, event.get("when", ""), event.get("interpretation", ""))
