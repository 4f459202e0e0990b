"""What holds of answers in the ``openai`` dialect alone (D1, D13)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from conformance.case import Level
from conformance.dialects import OPENAI
from conformance.oracle.registry import Scope, invariant
from conformance.oracle.seen import Seen
from conformance.oracle.shapes import shortened


@invariant(
    "role-once", Scope.STREAM, "The role is in a choice's first delta and in no other", readings="D1",
    fields="ChunkDelta.role", dialects=(OPENAI,),
)  # fmt: skip
def role_once(seen: Seen, _: Any) -> Iterator[str]:
    opened: set[int] = set()
    for number, (_chunk, choice) in enumerate(seen.choices_of_chunks()):
        is_first = choice["index"] not in opened
        opened.add(choice["index"])
        if ("role" in choice["delta"]) != is_first:
            yield f"delta {number} {'opens a choice without' if is_first else 'goes on, but has'} a role"


@invariant(
    "usage-chunk", Scope.STREAM, "usage comes once, in a last chunk without choices, and only if it was asked for",
    readings="D1", fields="ChatCompletionChunk.usage", dialects=(OPENAI,),
)  # fmt: skip
def usage_chunk(seen: Seen, _: Any) -> Iterator[str]:
    places = [number for number, chunk in enumerate(seen.chunks) if chunk.get("usage") is not None]
    if not seen.wants_usage:
        if places:
            yield f"chunk {places[0]} has usage, though none was asked for"
        return
    if places != [len(seen.chunks) - 1]:
        yield f"of {len(seen.chunks)} chunks those with usage are {places}, not the last one alone"
    for number in places:
        if seen.chunks[number]["choices"]:
            yield f"chunk {number} has usage and choices"


@invariant(
    "usage-null", Scope.STREAM, "With include_usage every chunk has the key usage, without it none has", readings="D13",
    fields="ChatCompletionChunk.usage", level=Level.SHOULD, dialects=(OPENAI,),
)  # fmt: skip
def usage_null(seen: Seen, _: Any) -> Iterator[str]:
    for number, chunk in enumerate(seen.chunks):
        if ("usage" in chunk) != seen.wants_usage:
            yield f"chunk {number} {'has' if 'usage' in chunk else 'lacks'} the key usage"


@invariant(
    "finishing-delta", Scope.STREAM, "A finishing delta that adds nothing is empty", readings="D13",
    fields="ChunkDelta.content", level=Level.SHOULD, dialects=(OPENAI,),
)  # fmt: skip
def finishing_delta(seen: Seen, _: Any) -> Iterator[str]:
    for number, (_chunk, choice) in enumerate(seen.choices_of_chunks()):
        idle = [key for key, value in choice["delta"].items() if not value]
        if choice["finish_reason"] is not None and idle:
            yield f"delta {number} finishes with {', '.join(idle)}, but without anything in it"


@invariant(
    "message-content", Scope.WHOLE, "content is null when there are calls and no text, and only then", readings="D13",
    fields="AssistantMessage.content AssistantMessage.refusal", level=Level.SHOULD, dialects=(OPENAI,),
)  # fmt: skip
def message_content(seen: Seen, _: Any) -> Iterator[str]:
    for choice in seen.body["choices"]:
        message = choice["message"]
        content, calls = message["content"], message.get("tool_calls")
        if (content is None) != (bool(calls) and not content):
            yield f"choice {choice['index']} has the content {shortened(repr(content))} and {len(calls or ())} calls"


@invariant(
    "completion-tokens", Scope.ANSWER, "No more tokens are counted than all sequences together may have",
    readings="R23 D1", fields="Usage.completion_tokens", dialects=(OPENAI,),
)  # fmt: skip
def completion_tokens(seen: Seen, _: Any) -> Iterator[str]:
    for usage in seen.usages if seen.max_tokens is not None else ():
        most = (seen.max_tokens or 0) * seen.num_choices
        if not seen.num_choices <= usage["completion_tokens"] <= most:
            yield f"{usage['completion_tokens']} tokens of {seen.num_choices} sequences; asked for were at most {most}"


@invariant(
    "code", Scope.NAMED, "The error has the given code", readings="D4 D5", fields="OpenAIError.code",
    dialects=(OPENAI,),
)  # fmt: skip
def code(seen: Seen, expected: str) -> Iterator[str]:
    if seen.error["code"] != expected:
        yield f"code is {seen.error['code']!r}, not {expected!r}"


@invariant("error-text", Scope.NAMED, "The error's text has the given words", readings="D5 D10")
def error_text(seen: Seen, expected: str) -> Iterator[str]:
    if expected not in seen.error["message"]:
        yield f"the text does not contain {expected!r}: {shortened(seen.error['message'])}"


@invariant(
    "num-calls", Scope.NAMED, "The first sequence has the given number of calls", readings="D12",
    fields="AssistantMessage.tool_calls", dialects=(OPENAI,),
)  # fmt: skip
def num_calls(seen: Seen, expected: int) -> Iterator[str]:
    if len(seen.sequences[0].calls) != expected:
        yield f"there are {len(seen.sequences[0].calls)} calls, not {expected}"


@invariant(
    "one-token", Scope.NAMED, "Every token of the first sequence is the same", readings="D12",
    fields="TokenLogprob.token", dialects=(OPENAI,),
)  # fmt: skip
def one_token(seen: Seen, _: Any) -> Iterator[str]:
    tokens = [entry["token"] for entry in seen.sequences[0].entries]
    if len(set(tokens)) != 1:
        yield f"the tokens are {shortened(str(tokens))}"
