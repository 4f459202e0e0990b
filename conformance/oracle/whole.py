"""What holds of an answer in one body."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from conformance.case import Level
from conformance.dialects import VLLM
from conformance.oracle.http import json_type_faults
from conformance.oracle.registry import Scope, invariant
from conformance.oracle.seen import NotJson, Seen
from conformance.oracle.shapes import blank_fault, created_fault, order_faults, schema_faults, unknown_keys

_COMPLETION: Final = {"$ref": "#/components/schemas/ChatCompletion"}


@invariant("body-schema", Scope.WHOLE, "The body is JSON in UTF-8 and keeps the schema ChatCompletion", readings="S2")
def body_schema(seen: Seen, _: Any) -> Iterator[str]:
    try:
        body = seen.body
    except NotJson as error:
        yield f"the body is no JSON: {error}"
        return
    yield from schema_faults(seen.contract, "ChatCompletion", body)


@invariant("body-content-type", Scope.WHOLE, "A whole answer is application/json")
def body_content_type(seen: Seen, _: Any) -> Iterator[str]:
    yield from json_type_faults(seen)


# The order of keys means nothing in JSON and the document does not speak of it: it is a reading of its tables.
@invariant(
    "body-key-order", Scope.WHOLE, "Keys come in the order of the table, at every level", readings="S2 S3 C18",
    level=Level.SHOULD,
)  # fmt: skip
def body_key_order(seen: Seen, _: Any) -> Iterator[str]:
    yield from order_faults(seen.contract, _COMPLETION, seen.body)


# The tables say what is there and not that nothing else may be; clients pass over what they do not know.
@invariant(
    "body-known-keys", Scope.WHOLE, "There are no keys but those of the tables", readings="D1", level=Level.SHOULD
)
def body_known_keys(seen: Seen, _: Any) -> Iterator[str]:
    yield from unknown_keys(seen.contract, _COMPLETION, seen.body)


@invariant("body-compact", Scope.WHOLE, "The body is compact JSON", readings="E11", level=Level.SHOULD)
def body_compact(seen: Seen, _: Any) -> Iterator[str]:
    yield from blank_fault(seen.exchange.body.decode("utf-8"))


@invariant(
    "body-model", Scope.WHOLE, "model is the name that the request gave", readings="E1", fields="ChatCompletion.model"
)
def body_model(seen: Seen, _: Any) -> Iterator[str]:
    if seen.body["model"] != seen.get("model"):
        yield f"model is {seen.body['model']!r}, asked for was {seen.get('model')!r}"


@invariant(
    "body-created", Scope.WHOLE, "created is a time in seconds, and not a time to come", readings="C17",
    fields="ChatCompletion.created", level=Level.SHOULD,
)  # fmt: skip
def body_created(seen: Seen, _: Any) -> Iterator[str]:
    yield from created_fault(seen.body["created"])


@invariant(
    "body-indices", Scope.WHOLE, "There are as many choices as asked for, indexed from 0 in order", readings="R7 S8",
    fields="ChatCompletion.choices Choice.index",
)  # fmt: skip
def body_indices(seen: Seen, _: Any) -> Iterator[str]:
    indices = [choice["index"] for choice in seen.body["choices"]]
    if indices != list(range(seen.num_choices)):
        yield f"the choices have the indices {indices}; asked for were {seen.num_choices}"


@invariant(
    "body-decode-times", Scope.WHOLE, "decode_time_arr has one entry less than the longest sequence has tokens",
    readings="S4", fields="ChatCompletion.decode_time_arr", dialects=(VLLM,),
)  # fmt: skip
def body_decode_times(seen: Seen, _: Any) -> Iterator[str]:
    num_times, num_tokens = len(seen.body["decode_time_arr"]), len(seen.body["usage"]["batch_size"])
    if num_times != num_tokens - 1:
        yield f"decode_time_arr has {num_times} entries; the longest sequence has {num_tokens} tokens"


@invariant(
    "body-whole-milliseconds", Scope.WHOLE, "prefill_time and decode_time_arr are whole milliseconds", readings="C1",
    fields="ChatCompletion.prefill_time ChatCompletion.decode_time_arr", level=Level.SHOULD, dialects=(VLLM,),
)  # fmt: skip
def body_whole_milliseconds(seen: Seen, _: Any) -> Iterator[str]:
    for value in (seen.body["prefill_time"], *seen.body["decode_time_arr"]):
        if value != int(value):
            yield f"{value} is not a whole number of milliseconds"


@invariant(
    "body-completion-tokens", Scope.WHOLE, "completion_tokens counts the tokens of all sequences", readings="S3",
    fields="Usage.completion_tokens Usage.batch_size", dialects=(VLLM,),
)  # fmt: skip
def body_completion_tokens(seen: Seen, _: Any) -> Iterator[str]:
    usage, num = seen.body["usage"], len(seen.body["choices"])
    longest, total = len(usage["batch_size"]), usage["completion_tokens"]
    if not longest + num - 1 <= total <= longest * num:
        yield f"completion_tokens is {total}; {num} sequences, the longest of {longest} tokens by batch_size"
    limit = seen.max_tokens
    if limit is not None and longest > limit:
        yield f"the longest sequence has {longest} tokens; at most {limit} were asked for"


@invariant("body-full-text", Scope.WHOLE, "What only chunks have is not in a whole answer", readings="S2 S6")
def body_full_text(seen: Seen, _: Any) -> Iterator[str]:
    for key in ("full_text", "error"):
        if key in seen.body:
            yield f"there is the key {key}"
    for choice in seen.body["choices"]:
        if "delta" in choice:
            yield "a choice has the key delta"
