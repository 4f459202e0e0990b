"""The table of operations: what the server must route and may answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from codegen.document import JsonObject
from codegen.render import render
from codegen.sites import dereferenced, operations


@dataclass(frozen=True, slots=True)
class Response:
    """A documented status with the media types of its body (none: no body)."""

    status: str
    media_types: tuple[str, ...]
    description: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One method on one path."""

    operation_id: str
    method: str
    path: str
    summary: str
    description: str
    request_media_types: tuple[str, ...]
    responses: tuple[Response, ...]


def read_operations(document: JsonObject) -> list[Operation]:
    """All operations of the document, in its order."""
    return [_operation(document, path, method, item) for _, path, method, item in operations(document)]


def _operation(document: JsonObject, path: str, method: str, item: JsonObject) -> Operation:
    body: dict[str, Any] = dereferenced(document, item.get("requestBody", {}))
    return Operation(
        operation_id=item["operationId"],
        method=method.upper(),
        path=path,
        summary=item.get("summary", ""),
        description=item.get("description", ""),
        request_media_types=tuple(body.get("content", {})),
        responses=tuple(
            _response(status, dereferenced(document, response)) for status, response in item["responses"].items()
        ),
    )


def _response(status: str, response: JsonObject) -> Response:
    return Response(status, tuple(response.get("content", {})), response.get("description", ""))


def generate(document: JsonObject) -> str:
    """The source of the operations module, without header."""
    return render("operations.py.j2", operations=read_operations(document))
