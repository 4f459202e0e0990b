"""The table of x-rules: everything a request must satisfy that no model carries."""

from __future__ import annotations

from dataclasses import dataclass

from codegen.dialects import DIALECTS
from codegen.document import JsonObject
from codegen.render import render
from codegen.sites import operations


@dataclass(frozen=True, slots=True)
class Rule:
    """One x-rule; `bound` and `values` are the numbers and names that its predicate compares with, `dialects` those in
    which it holds."""

    id: str
    message: str
    field: str
    doc_ref: int | None
    interpretation: str | None
    bound: int | float | None
    values: tuple[str, ...]
    dialects: tuple[str, ...]


def read_rules(document: JsonObject) -> list[Rule]:
    """All rules of the document, in its order. The profile has been checked."""
    return [
        Rule(
            id=item["id"],
            message=item["message"],
            field=item["field"],
            doc_ref=item.get("doc-ref"),
            interpretation=item.get("interpretation"),
            bound=item.get("bound"),
            values=tuple(item.get("values", [])),
            dialects=(item["dialect"],) if "dialect" in item else DIALECTS,
        )
        for _, _, _, operation in operations(document)
        for item in operation.get("x-rules", [])
    ]


def generate(document: JsonObject) -> str:
    """The source of the rules module, without header."""
    return render("rules.py.j2", rules=read_rules(document))
