"""The table of operations: what the server must route."""

from __future__ import annotations

from dataclasses import dataclass

from codegen.document import JsonObject
from codegen.render import render
from codegen.sites import operations


@dataclass(frozen=True, slots=True)
class Operation:
    """One method on one path."""

    operation_id: str
    method: str
    path: str
    summary: str
    description: str


def read_operations(document: JsonObject) -> list[Operation]:
    """All operations of the document, in its order."""
    return [_operation(path, method, item) for _, path, method, item in operations(document)]


def _operation(path: str, method: str, item: JsonObject) -> Operation:
    return Operation(
        operation_id=item["operationId"],
        method=method.upper(),
        path=path,
        summary=item.get("summary", ""),
        description=item.get("description", ""),
    )


def generate(document: JsonObject) -> str:
    """The source of the operations module, without header."""
    return render("operations.py.j2", operations=read_operations(document))
