"""What holds of a stream of events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from conformance.case import Level
from conformance.dialects import OPENAI, VLLM
from conformance.oracle.registry import Scope, invariant
from conformance.oracle.seen import Seen
from conformance.oracle.shapes import (
    blank_fault,
    created_fault,
    order_faults,
    schema_faults,
    shortened,
    unknown_keys,
)

_CHUNK = {"$ref": "#/components/schemas/ChatCompletionChunk"}


@invariant("stream-content-type", Scope.STREAM, "A stream is text/event-stream", readings="S5")
def stream_content_type(seen: Seen, _: Any) -> Iterator[str]:
    if not seen.exchange.is_stream:
        yield f"Content-Type is {seen.exchange.headers.get('content-type', '')!r}, not text/event-stream"


@invariant("frame-bytes", Scope.STREAM, "A frame is 'data: ', one line and an empty line, with LF only", readings="S5")
def frame_bytes(seen: Seen, _: Any) -> Iterator[str]:
    for number, frame in enumerate(seen.exchange.frames):
        for fault in frame.faults:
            yield f"event {number} {fault}"
        if not frame.faults and frame.data is None:
            yield f"event {number} has no data"
    if seen.exchange.rest and seen.exchange.trouble is None:
        yield f"the stream ends within a frame: {shortened(repr(seen.exchange.rest))}"


@invariant("done-last", Scope.STREAM, "[DONE] comes once, and nothing comes after it", readings="S5")
def done_last(seen: Seen, _: Any) -> Iterator[str]:
    places = [number for number, frame in enumerate(seen.exchange.frames) if frame.is_done]
    if not places:
        yield "there is no [DONE]"
    elif len(places) > 1:
        yield f"there are {len(places)} [DONE]"
    elif places[0] != len(seen.exchange.frames) - 1:
        yield f"{len(seen.exchange.frames) - 1 - places[0]} events come after [DONE]"


@invariant("chunk-json", Scope.STREAM, "The data of an event is JSON", readings="S5")
def chunk_json(seen: Seen, _: Any) -> Iterator[str]:
    for data, value in seen.parsed_events:
        if value is None:
            yield f"no JSON: {shortened(data)}"


@invariant("chunk-schema", Scope.STREAM, "Each event keeps the schema ChatCompletionChunk", readings="S6 S16 D9")
def chunk_schema(seen: Seen, _: Any) -> Iterator[str]:
    if not seen.events:
        yield "there are no events"
    for number, event in enumerate(seen.events):
        for fault in schema_faults(seen.contract, "ChatCompletionChunk", event):
            yield f"event {number}: {fault}"


@invariant(
    "chunk-key-order", Scope.STREAM, "Keys come in the order of the table, at every level", readings="S6 S3",
    level=Level.SHOULD,
)  # fmt: skip
def chunk_key_order(seen: Seen, _: Any) -> Iterator[str]:
    for number, event in enumerate(seen.chunks):
        for fault in order_faults(seen.contract, _CHUNK, event):
            yield f"event {number}: {fault}"


@invariant(
    "chunk-known-keys", Scope.STREAM, "There are no keys but those of the tables", readings="D1", level=Level.SHOULD
)
def chunk_known_keys(seen: Seen, _: Any) -> Iterator[str]:
    for number, event in enumerate(seen.chunks):
        for fault in unknown_keys(seen.contract, _CHUNK, event):
            yield f"event {number}: {fault}"


@invariant("chunk-compact", Scope.STREAM, "Events are compact JSON", readings="S5 E11", level=Level.SHOULD)
def chunk_compact(seen: Seen, _: Any) -> Iterator[str]:
    for number, (data, _value) in enumerate(seen.parsed_events):
        for fault in blank_fault(data):
            yield f"event {number}: {fault}"


@invariant(
    "stream-constants", Scope.STREAM, "id, created and model never change", readings="S6",
    fields="ChatCompletionChunk.id ChatCompletionChunk.created ChatCompletionChunk.model",
)  # fmt: skip
def stream_constants(seen: Seen, _: Any) -> Iterator[str]:
    for key in ("id", "created", "model"):
        values = {chunk[key] for chunk in seen.chunks}
        if len(values) > 1:
            yield f"{key} takes {len(values)} values: {shortened(str(sorted(values)))}"


@invariant(
    "stream-created", Scope.STREAM, "created is a time in seconds, and not a time to come", readings="C17",
    fields="ChatCompletionChunk.created", level=Level.SHOULD,
)  # fmt: skip
def stream_created(seen: Seen, _: Any) -> Iterator[str]:
    for created in {chunk["created"] for chunk in seen.chunks}:
        yield from created_fault(created)


@invariant("stream-model", Scope.STREAM, "model is the name that the request gave", fields="ChatCompletionChunk.model")
def stream_model(seen: Seen, _: Any) -> Iterator[str]:
    for name in {chunk["model"] for chunk in seen.chunks} - {seen.get("model")}:
        yield f"model is {name!r}, asked for was {seen.get('model')!r}"


@invariant(
    "chunk-role", Scope.STREAM, "Every delta carries the role", readings="S6", fields="ChunkDelta.role",
    dialects=(VLLM,),
)  # fmt: skip
def chunk_role(seen: Seen, _: Any) -> Iterator[str]:
    for number, (_chunk, choice) in enumerate(seen.choices_of_chunks()):
        if choice["delta"].get("role") != "assistant":
            yield f"delta {number} has the role {choice['delta'].get('role')!r}"


@invariant(
    "chunk-one-choice", Scope.STREAM, "A chunk has one choice, unless it is there for the usage", readings="S6 D1",
    fields="ChatCompletionChunk.choices",
)  # fmt: skip
def chunk_one_choice(seen: Seen, _: Any) -> Iterator[str]:
    """Where usage belongs into a chunk of its own, ``usage-chunk`` looks at that one."""
    has_its_own = seen.contract.dialect.name == OPENAI
    for number, chunk in enumerate(seen.chunks):
        if len(chunk["choices"]) != 1 and not (has_its_own and chunk.get("usage") is not None):
            yield f"event {number} has {len(chunk['choices'])} choices"


@invariant(
    "stream-indices", Scope.STREAM, "The indices are those of the sequences that were asked for", readings="S8 R7",
    fields="ChunkChoice.index",
)  # fmt: skip
def stream_indices(seen: Seen, _: Any) -> Iterator[str]:
    indices = sorted({choice["index"] for _, choice in seen.choices_of_chunks()})
    if indices != list(range(seen.num_choices)):
        yield f"the choices have the indices {indices}; asked for were {seen.num_choices}"


@invariant(
    "one-finish", Scope.STREAM, "Each choice finishes once, and nothing of it comes after", readings="S9",
    fields="ChunkChoice.finish_reason",
)  # fmt: skip
def one_finish(seen: Seen, _: Any) -> Iterator[str]:
    finished: set[int] = set()
    for number, (_chunk, choice) in enumerate(seen.choices_of_chunks()):
        if choice["index"] in finished:
            yield f"delta {number} comes after choice {choice['index']} has finished"
        if choice["finish_reason"] is not None:
            finished.add(choice["index"])
    for index in sorted({choice["index"] for _, choice in seen.choices_of_chunks()} - finished):
        yield f"choice {index} has no finish_reason"


@invariant(
    "usage-with-finish", Scope.STREAM, "usage comes in the chunk that finishes a choice, and in no other",
    readings="S6", fields="ChatCompletionChunk.usage", dialects=(VLLM,),
)  # fmt: skip
def usage_with_finish(seen: Seen, _: Any) -> Iterator[str]:
    for number, (chunk, choice) in enumerate(seen.choices_of_chunks()):
        is_finish = choice["finish_reason"] is not None
        if is_finish != ("usage" in chunk):
            yield f"delta {number} {'finishes without' if is_finish else 'does not finish but has'} usage"


@invariant(
    "opening-chunk", Scope.STREAM, "Each choice is opened by a chunk with empty content and no log-probabilities",
    readings="S7 E9 C28",
    fields="ChunkDelta.content", level=Level.SHOULD,
)  # fmt: skip
def opening_chunk(seen: Seen, _: Any) -> Iterator[str]:
    opened: set[int] = set()
    for _chunk, choice in seen.choices_of_chunks():
        if choice["index"] not in opened:
            opened.add(choice["index"])
            if (choice["delta"].get("content"), choice["finish_reason"], choice["logprobs"]) != ("", None, None):
                yield f"choice {choice['index']} begins with {shortened(str(choice))}"


@invariant(
    "no-empty-deltas", Scope.STREAM, "Only the opening and the finishing chunk of a choice may be empty",
    readings="S11 E10", fields="ChunkDelta.content", level=Level.SHOULD,
)  # fmt: skip
def no_empty_deltas(seen: Seen, _: Any) -> Iterator[str]:
    opened: set[int] = set()
    for number, (_chunk, choice) in enumerate(seen.choices_of_chunks()):
        delta, is_first = choice["delta"], choice["index"] not in opened
        opened.add(choice["index"])
        brings = any(delta.get(key) for key in ("content", "reasoning_content", "tool_calls"))
        if not brings and not is_first and choice["finish_reason"] is None:
            yield f"delta {number} brings nothing"


@invariant(
    "beam-pseudo-stream", Scope.STREAM, "Beams are delivered each in one piece", readings="R8", level=Level.SHOULD
)
def beam_pseudo_stream(seen: Seen, _: Any) -> Iterator[str]:
    num_chunks = sum(bool(chunk["choices"]) for chunk in seen.chunks)
    if seen.has_beams and num_chunks > 2 * seen.num_choices:
        yield f"{num_chunks} chunks for {seen.num_choices} sequences"


@invariant(
    "full-text", Scope.STREAM, "full_text comes with a finish, is the text so far, and content is then cumulative",
    readings="S15 E13", fields="ChatCompletionChunk.full_text", dialects=(VLLM,),
)  # fmt: skip
def full_text(seen: Seen, _: Any) -> Iterator[str]:
    if not any("full_text" in chunk for chunk in seen.chunks):
        return
    last: dict[int, str] = {}
    for number, (chunk, choice) in enumerate(seen.choices_of_chunks()):
        text = choice["delta"].get("content", "")
        if not text.startswith(last.get(choice["index"], "")):
            yield f"delta {number} does not go on from the text so far"
        last[choice["index"]] = text
        if ("full_text" in chunk) != (choice["finish_reason"] is not None):
            yield f"delta {number} has full_text without a finish, or a finish without it"
        elif chunk.get("full_text", text) != text:
            yield f"full_text is not the content of delta {number}"


@invariant(
    "stream-headers", Scope.STREAM, "A stream is not to be cached or held back", readings="S5", level=Level.SHOULD
)
def stream_headers(seen: Seen, _: Any) -> Iterator[str]:
    for name, value in (("cache-control", "no-cache"), ("x-accel-buffering", "no")):
        told = seen.exchange.headers.get(name, "")
        if value not in told:
            yield f"{name} is {told!r}, not {value!r}"


@invariant(
    "stream-length",
    Scope.STREAM,
    "No choice has more tokens than were asked for",
    readings="R23",
    fields="Usage.completion_tokens",
    dialects=(VLLM,),
)
def stream_length(seen: Seen, _: Any) -> Iterator[str]:
    for usage in seen.usages:
        limit, num = seen.max_tokens, usage["completion_tokens"]
        if limit is not None and num > limit:
            yield f"a choice has {num} tokens; at most {limit} were asked for"
        if num != len(usage["batch_size"]):
            yield f"completion_tokens is {num}, batch_size has {len(usage['batch_size'])} entries"


@invariant(
    "failure-last",
    Scope.FAILED,
    "A failure is the last event, in the dialect's shape, without [DONE]",
    readings="D9 S16",
)
def failure_last(seen: Seen, _: Any) -> Iterator[str]:
    dialect = seen.contract.dialect
    failures = [event for event in seen.events if isinstance(event, dict) and "error" in event]
    if len(failures) != 1 or seen.events[-1] is not failures[0]:
        yield f"there are {len(failures)} error events, the last event is {shortened(str(seen.events[-1:]))}"
    for event in failures:
        yield from schema_faults(seen.contract, dialect.error_body, event)
        told = dialect.error_of(event)["type"]
        if told != dialect.failure:
            yield f"its class is {told!r}, not {dialect.failure!r}"
    if any(frame.is_done for frame in seen.exchange.frames):
        yield "there is [DONE] after a failure"
    for chunk in seen.chunks:
        yield from schema_faults(seen.contract, "ChatCompletionChunk", chunk)


@invariant("failure-no-finish", Scope.FAILED, "A choice that failed has no finish_reason", readings="D9 S16")
def failure_no_finish(seen: Seen, _: Any) -> Iterator[str]:
    for _chunk, choice in seen.choices_of_chunks():
        if choice["index"] == 0 and choice["finish_reason"] is not None:
            yield f"choice 0 finishes with {choice['finish_reason']!r}"
