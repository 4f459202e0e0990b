"""Profile of the operations: ids, media types, and how a stream's events are described."""

from __future__ import annotations

from collections.abc import Iterator

from codegen.diagnostics import Diagnostic
from codegen.document import JsonObject
from codegen.pointer import join, resolve
from codegen.sites import dereferenced, operations, references

EVENT_STREAM = "text/event-stream"


def check(document: JsonObject) -> Iterator[Diagnostic]:
    """Unique operation ids, quoted statuses with descriptions, A11, and references that lead somewhere."""
    seen: set[str] = set()
    for pointer, _, _, operation in operations(document):
        operation_id = operation.get("operationId")
        if not isinstance(operation_id, str) or not operation_id.isidentifier():
            yield Diagnostic(pointer, "operation", "an operation needs an `operationId` that is a Python name")
        elif operation_id in seen:
            yield Diagnostic(join(pointer, "operationId"), "operation", f"`{operation_id}` is used twice")
        seen.add(str(operation_id))
        if not operation.get("responses"):
            yield Diagnostic(pointer, "operation", "an operation needs `responses`")
        yield from _check_streams(document, pointer, operation)
    for pointer, target in references(document):
        if not _leads_somewhere(document, target):
            yield Diagnostic(pointer, "reference", f"`{target}` leads nowhere")


def _check_streams(document: JsonObject, pointer: str, operation: JsonObject) -> Iterator[Diagnostic]:
    for status, response in operation.get("responses", {}).items():
        content = dereferenced(document, response).get("content", {})
        if EVENT_STREAM not in content:
            continue
        schema = dereferenced(document, content[EVENT_STREAM].get("schema", {}))
        if "data" not in schema.get("properties", {}) or "data" not in schema.get("required", []):
            place = join(pointer, "responses", status, "content", EVENT_STREAM)
            yield Diagnostic(place, "A11", "a stream's schema is the event object: `data` required")


def _leads_somewhere(document: JsonObject, target: str) -> bool:
    if not target.startswith("#/"):
        return False
    try:
        resolve(document, target)
    except KeyError:
        return False
    return True
