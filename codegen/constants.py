"""Numbers of the contract that stand in no schema and no rule, as constants."""

from __future__ import annotations

from dataclasses import dataclass

from codegen.document import JsonObject
from codegen.render import render
from codegen.sites import operations


@dataclass(frozen=True, slots=True)
class Constant:
    """One entry of `x-constants`."""

    id: str
    description: str
    value: int
    doc_ref: int | None
    interpretation: str | None

    @property
    def name(self) -> str:
        """Its name in Python."""
        return self.id.replace("-", "_").upper()


def read_constants(operation: JsonObject) -> list[Constant]:
    """The constants of one operation, in its order. The profile has been checked."""
    return [
        Constant(
            id=item["id"],
            description=item["description"],
            value=item["value"],
            doc_ref=item.get("doc-ref"),
            interpretation=item.get("interpretation"),
        )
        for item in operation.get("x-constants", [])
    ]


def generate(document: JsonObject) -> str:
    """The source of the constants module, without header."""
    found = [constant for _, _, _, operation in operations(document) for constant in read_constants(operation)]
    return render("constants.py.j2", constants=found)
