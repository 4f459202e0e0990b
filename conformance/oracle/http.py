"""What holds of any response, and of refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from conformance.case import Level
from conformance.client import Trouble
from conformance.dialects import OPENAI
from conformance.oracle.registry import Scope, invariant
from conformance.oracle.seen import NotJson, Seen
from conformance.oracle.shapes import names_field, names_place, schema_faults, shortened


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
    fields="ErrorBody.error ErrorBody.error_type OpenAIErrorBody.error",
)
def error_schema(seen: Seen, _: Any) -> Iterator[str]:
    try:
        body = seen.body
    except NotJson as error:
        yield f"the body is no JSON: {error}"
        return
    yield from schema_faults(seen.contract, seen.contract.dialect.error_body, body)


@invariant("error-content-type", Scope.REFUSAL, "A refusal is application/json")
def error_content_type(seen: Seen, _: Any) -> Iterator[str]:
    yield from json_type_faults(seen)


@invariant(
    "error-type",
    Scope.REFUSAL,
    "The class of the error belongs to the status",
    readings="D2 D3 D6 D8 C13",
    fields="ErrorBody.error_type OpenAIError.type",
    level=Level.SHOULD,
)
def error_type(seen: Seen, _: Any) -> Iterator[str]:
    expected, told = seen.contract.error_types.get(seen.exchange.status or 0), seen.error["type"]
    if expected is not None and told != expected:
        yield f"the class is {told!r}; status {seen.exchange.status} has {expected!r}"


@invariant(
    "error-param",
    Scope.REFUSAL,
    "param is the field at fault",
    readings="D2 D3",
    fields="OpenAIError.param",
    level=Level.SHOULD,
    dialects=(OPENAI,),
)
def error_param(seen: Seen, _: Any) -> Iterator[str]:
    told = seen.error["param"]
    if seen.names is not None and not seen.is_excused and (told is None or not names_place(told, seen.names)):
        yield f"param is {told!r}, not {seen.names!r}"


@invariant(
    "error-no-code",
    Scope.REFUSAL,
    "A fault of a field needs no word for programs",
    readings="D3",
    fields="OpenAIError.code",
    level=Level.SHOULD,
    dialects=(OPENAI,),
)
def error_no_code(seen: Seen, _: Any) -> Iterator[str]:
    if seen.status == seen.contract.dialect.invalid and seen.error["code"] not in (None, "context_length_exceeded"):
        yield f"code is {seen.error['code']!r}"


# The document does not say how errors are worded. It counts as a MUST all the same: a refusal that does not name the
# field may have been given for any reason, and would prove nothing of the bound or type that the case is about.
@invariant(
    "refusal-names-field",
    Scope.REFUSAL,
    "The text of a refusal names the field",
    readings="D2",
    fields="ErrorBody.error OpenAIError.message",
)
def refusal_names_field(seen: Seen, _: Any) -> Iterator[str]:
    if seen.names is not None and not names_field(seen.error["message"], seen.names):
        yield f"the text does not name {seen.names}: {shortened(seen.error['message'])}"


@invariant(
    "refusal-names-place", Scope.REFUSAL, "The text of a refusal names the exact place", readings="D2",
    fields="ErrorBody.error", level=Level.SHOULD,
)  # fmt: skip
def refusal_names_place(seen: Seen, _: Any) -> Iterator[str]:
    if seen.names is not None and not names_place(seen.error["message"], seen.names):
        yield f"the text does not contain {seen.names}: {shortened(seen.error['message'])}"


@invariant(
    "retry-after",
    Scope.REFUSAL,
    "Overload says after how many seconds another attempt makes sense",
    readings="D6 C14",
)
def retry_after(seen: Seen, _: Any) -> Iterator[str]:
    if seen.exchange.status in (429, 503) and not seen.exchange.headers.get("retry-after", "").isdigit():
        yield "there is no Retry-After in whole seconds"


def json_type_faults(seen: Seen) -> Iterator[str]:
    told = seen.exchange.headers.get("content-type", "")
    if told.partition(";")[0].strip().lower() != "application/json":
        yield f"Content-Type is {told!r}, not application/json"


def _excerpt(seen: Seen) -> str:
    return shortened(seen.exchange.body.decode("utf-8", "replace"))
