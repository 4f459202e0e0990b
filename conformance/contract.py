"""The contract as the suite reads it: schemas, validators, what each document line says, which fields answers have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, cached_property
from typing import Any, Final

import jsonschema_rs

from conformance.dialects import VLLM, Dialect, dialect_named, view
from conformance.files import SPEC, read_yaml

Schema = dict[str, Any]
_ANSWERS: Final = ("ChatCompletion", "ChatCompletionChunk", "ModelList", "HealthStatus")
"""Components that bodies are made of, beside those of errors; the others hang below them."""


class Contract:
    """``spec/openapi.yaml`` as one dialect has it, and the readings beside it."""

    def __init__(self, document: Schema, readings: dict[str, str], dialect: Dialect) -> None:
        self.document = document
        self.dialect = dialect
        self.schemas: dict[str, Schema] = document["components"]["schemas"]
        self.readings = readings
        """Number of a reading -> what it says."""
        self._validators: dict[str, jsonschema_rs.Draft202012Validator] = {}

    def validator(self, component: str) -> jsonschema_rs.Draft202012Validator:
        """A JSON Schema validator of one component."""
        if component not in self._validators:
            root = {"$ref": f"#/components/schemas/{component}", "components": self.document["components"]}
            self._validators[component] = jsonschema_rs.Draft202012Validator(root)
        return self._validators[component]

    def resolve(self, schema: Schema) -> Schema:
        """The schema behind ``$ref``; what stands beside the reference is kept."""
        while "$ref" in schema:
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            schema = {**self.schemas[schema["$ref"].rpartition("/")[2]], **rest}
        return schema

    def field(self, name: str) -> Schema:
        """The schema of ``Component.field``. Raises ``KeyError``."""
        component, _, key = name.partition(".")
        schema: Schema = self.schemas[component]["properties"][key]
        return schema

    @cached_property
    def error_types(self) -> dict[int, str]:
        """Status of a refusal -> the class of its error."""
        field = self.field("ErrorBody.error_type" if self.dialect.name == VLLM else "OpenAIError.type")
        classes: dict[int, str] = {}
        for name, statuses in zip(field["enum"], field["x-statuses"], strict=True):
            classes |= dict.fromkeys(listed(statuses), name)
        return classes

    @cached_property
    def lines(self) -> frozenset[int]:
        """All lines of the document's tables; it knows the ``vllm`` dialect alone."""
        if self.dialect.name != VLLM:
            return frozenset()
        tables = [value for key, value in self.document["x-mindie"].items() if key.endswith("-table")]
        return frozenset(line for first, last in tables for line in range(first, last + 1))

    @cached_property
    def says(self) -> dict[int, list[tuple[str, str]]]:
        """Line -> the fields that come from it, each with its description."""
        told: dict[int, list[tuple[str, str]]] = {}
        for place, field in self._fields():
            for line in lines_of(field):
                told.setdefault(line, []).append((place, " ".join(field.get("description", "").split())))
        return told

    @cached_property
    def answer_fields(self) -> tuple[str, ...]:
        """Every field of an answer, as ``Component.field``."""
        components = self.reachable(*_ANSWERS, self.dialect.error_body)
        return tuple(f"{name}.{key}" for name in components for key in self.schemas[name]["properties"])

    def reachable(self, *roots: str) -> list[str]:
        """The components that ``roots`` are made of, themselves included, in the order in which they are met."""
        found: list[str] = []
        waiting = list(roots)
        while waiting:
            name = waiting.pop(0)
            if name not in found:
                found.append(name)
                waiting += re.findall(r"#/components/schemas/(\w+)", str(self.schemas[name]))
        return found

    def _fields(self) -> Iterator[tuple[str, Schema]]:
        for name, schema in self.schemas.items():
            yield from _described(schema, name)


def _described(schema: Schema, place: str) -> Iterator[tuple[str, Schema]]:
    """The fields of a component, those of its open maps included."""
    for key, field in schema.get("properties", {}).items():
        yield f"{place}.{key}", field
        yield from _described(field.get("then", {}), f"{place}.{key}")


def lines_of(field: Schema) -> tuple[int, ...]:
    """The document lines that a field comes from."""
    return tuple(listed(field.get("x-doc-ref", field.get("doc-ref"))))


def readings_of(field: Schema) -> tuple[str, ...]:
    """The readings that shape a field."""
    return tuple(listed(field.get("x-interpretation", field.get("interpretation"))))


def listed(value: Any) -> list[Any]:
    """Nothing, one thing or several things as a list."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


@cache
def load_contract(dialect: str = VLLM) -> Contract:
    """The contract beside this package, or inside it, as ``dialect`` has it. Raises ``SuiteError``."""
    readings = SPEC / "docs" / "interpretations.md"
    text = readings.read_text("utf-8") if readings.is_file() else ""
    rows = re.findall(r"^\| ([A-Z]\d+) \|(.*)\|$", text, re.MULTILINE)
    return Contract(
        view(read_yaml(SPEC / "openapi.yaml"), dialect),
        {number: ": ".join(row.split(" | ", 1)).strip() for number, row in rows},
        dialect_named(dialect),
    )
