"""Calls of functions, in whole answers and streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from conformance.oracle.registry import Scope, invariant
from conformance.oracle.seen import NotJson, Seen, parse_json

_WHOLE_FIELDS: Final = "AssistantMessage.tool_calls ToolCall.id ToolCall.function ToolCallFunction.name"


@invariant(
    "calls-only-with-tools",
    Scope.ANSWER,
    "Functions are called only when some are on offer",
    readings="S2",
    fields="AssistantMessage.tool_calls",
)
def calls_only_with_tools(seen: Seen, _: Any) -> Iterator[str]:
    for index, one in seen.sequences.items():
        if one.calls and not seen.offers_tools:
            yield f"choice {index} calls {one.calls[0]['name']!r}, though no tools are on offer"


@invariant(
    "calls-known",
    Scope.ANSWER,
    "A call names a function of the request",
    fields="ToolCallFunction.name DeltaToolCallFunction.name",
)
def calls_known(seen: Seen, _: Any) -> Iterator[str]:
    names = {tool["function"]["name"] for tool in seen.get("tools", [])}
    for one in seen.sequences.values():
        for call in one.calls:
            if call["name"] not in names:
                yield f"{call['name']!r} is not on offer"


@invariant(
    "calls-arguments",
    Scope.ANSWER,
    "Arguments are a JSON object as text, unless the length cut them off",
    readings="S13 S9",
    fields="ToolCallFunction.arguments DeltaToolCallFunction.arguments",
)
def calls_arguments(seen: Seen, _: Any) -> Iterator[str]:
    for one in seen.sequences.values():
        for call in one.calls:
            if one.finish != "length" and not _is_object(call["arguments"]):
                yield f"the arguments of {call['name']!r} are {call['arguments'][:80]!r}"


@invariant(
    "calls-ids",
    Scope.ANSWER,
    "The ids of an answer's calls differ",
    readings="S13",
    fields="ToolCall.id DeltaToolCall.id",
)
def calls_ids(seen: Seen, _: Any) -> Iterator[str]:
    ids = [call["id"] for one in seen.sequences.values() for call in one.calls]
    if len(set(ids)) != len(ids):
        yield f"the ids are {ids}"


@invariant(
    "calls-finish",
    Scope.ANSWER,
    "finish_reason is tool_calls when and only when a call was delivered whole",
    readings="S9",
    fields="Choice.finish_reason ChunkChoice.finish_reason",
)
def calls_finish(seen: Seen, _: Any) -> Iterator[str]:
    for index, one in seen.sequences.items():
        if (one.finish == "tool_calls") != (bool(one.calls) and one.finish != "length"):
            yield f"choice {index} has {len(one.calls)} calls and finishes with {one.finish!r}"


@invariant(
    "call-deltas",
    Scope.STREAM,
    "The first piece of a call has every key and no arguments, later ones only index and arguments",
    readings="S13",
    fields="ChunkDelta.tool_calls DeltaToolCall.index DeltaToolCall.type DeltaToolCall.function",
)
def call_deltas(seen: Seen, _: Any) -> Iterator[str]:
    begun: set[tuple[int, int]] = set()
    for _chunk, choice in seen.choices_of_chunks():
        for piece in choice["delta"].get("tool_calls", ()):
            place = (choice["index"], piece["index"])
            expected = ["index", "function"] if place in begun else ["index", "id", "type", "function"]
            inner = ["arguments"] if place in begun else ["name", "arguments"]
            if list(piece) != expected or list(piece["function"]) != inner:
                yield f"a piece of call {piece['index']} has the keys {list(piece)} and {list(piece['function'])}"
            if place not in begun and piece["function"]["arguments"]:
                yield f"the first piece of call {piece['index']} has arguments"
            begun.add(place)


def _is_object(text: str) -> bool:
    try:
        return isinstance(parse_json(text), dict)
    except NotJson:
        return False
