"""What holds of any response, and of refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from conformance.case import Level
from conformance.client import Trouble
from conformance.oracle.registry import Scope, invariant
from conformance.oracle.seen import NotJson, Seen
from conformance.oracle.shapes import schema_faults, shortened

ERROR_TYPES: Final = {
    400: "Bad Request",
    404: "NotFoundError",
    405: "Method Not Allowed",
    413: "Request Entity Too Large",
    415: "Unsupported Media Type",
    422: "Input Validation Error",
    431: "Request Header Fields Too Large",
    500: "Incomplete Generation",
    503: "Service Unavailable",
}
"""The contract gives each status its class of error, in comments of ErrorBody.error_type."""


def _trouble(trouble: Trouble, seen: Seen) -> Iterator[str]:
    if seen.exchange.trouble is trouble:
        yield seen.exchange.reason


@invariant("answer-complete", Scope.HTTP, "The response is HTTP and comes to its end")
def answer_complete(seen: Seen, _: Any) -> Iterator[str]:
    yield from _trouble(Trouble.BROKEN, seen)


@invariant("answer-in-time", Scope.HTTP, "The response is complete within the time that the run allows it")
def answer_in_time(seen: Seen, _: Any) -> Iterator[str]:
    yield from _trouble(Trouble.SLOW, seen)


@invariant("answer-size", Scope.HTTP, "The response keeps within the bytes and events that the run allows it")
def answer_size(seen: Seen, _: Any) -> Iterator[str]:
    yield from _trouble(Trouble.LARGE, seen)


@invariant("answer-not-encoded", Scope.HTTP, "Only identity was accepted, so the response is not compressed")
def answer_not_encoded(seen: Seen, _: Any) -> Iterator[str]:
    yield from _trouble(Trouble.ENCODED, seen)


@invariant("status", Scope.HTTP, "The status is the one that the contract gives the request", readings="D3 S16")
def status(seen: Seen, _: Any) -> Iterator[str]:
    if seen.exchange.status is not None and seen.exchange.status != seen.status:
        yield f"status {seen.exchange.status} instead of {seen.status}: {_excerpt(seen)}"


@invariant(
    "error-schema",
    Scope.REFUSAL,
    "A refusal has the body of the dialect",
    readings="D2",
    fields="ErrorBody.error ErrorBody.error_type",
)
def error_schema(seen: Seen, _: Any) -> Iterator[str]:
    try:
        body = seen.body
    except NotJson as error:
        yield f"the body is no JSON: {error}"
        return
    yield from schema_faults(seen.contract, "ErrorBody", body)


@invariant("error-content-type", Scope.REFUSAL, "A refusal is application/json")
def error_content_type(seen: Seen, _: Any) -> Iterator[str]:
    yield from json_type_faults(seen)


@invariant(
    "error-type",
    Scope.REFUSAL,
    "The class of the error belongs to the status",
    readings="D2 C13",
    fields="ErrorBody.error_type",
)
def error_type(seen: Seen, _: Any) -> Iterator[str]:
    expected, told = ERROR_TYPES.get(seen.exchange.status or 0), seen.body["error_type"]
    if expected is not None and told != expected:
        yield f"error_type is {told!r}; status {seen.exchange.status} has {expected!r}"


@invariant(
    "refusal-names-field",
    Scope.REFUSAL,
    "The text of a refusal names the field",
    readings="D2",
    fields="ErrorBody.error",
)
def refusal_names_field(seen: Seen, _: Any) -> Iterator[str]:
    if seen.names is not None:
        leaf = seen.names.split("[")[0].split(".")[0], seen.names.rstrip("]0123456789[").rpartition(".")[2]
        if not any(name and name in seen.body["error"] for name in leaf):
            yield f"the text names neither {leaf[0]} nor {leaf[1]}: {shortened(seen.body['error'])}"


@invariant(
    "refusal-names-place", Scope.REFUSAL, "The text of a refusal names the exact place", readings="D2",
    fields="ErrorBody.error", level=Level.SHOULD,
)  # fmt: skip
def refusal_names_place(seen: Seen, _: Any) -> Iterator[str]:
    if seen.names is not None and seen.names not in seen.body["error"]:
        yield f"the text does not contain {seen.names}: {shortened(seen.body['error'])}"


@invariant(
    "retry-after", Scope.REFUSAL, "503 says after how many seconds another attempt makes sense", readings="D6 C14"
)
def retry_after(seen: Seen, _: Any) -> Iterator[str]:
    if seen.exchange.status == 503 and not seen.exchange.headers.get("retry-after", "").isdigit():
        yield "there is no Retry-After in whole seconds"


def json_type_faults(seen: Seen) -> Iterator[str]:
    told = seen.exchange.headers.get("content-type", "")
    if told.partition(";")[0].strip().lower() != "application/json":
        yield f"Content-Type is {told!r}, not application/json"


def _excerpt(seen: Seen) -> str:
    return shortened(seen.exchange.body.decode("utf-8", "replace"))
