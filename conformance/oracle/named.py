"""What single cases ask for by name, with an argument."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import jsonschema_rs

from conformance.oracle.registry import Scope, invariant
from conformance.oracle.seen import NotJson, Seen, parse_json
from conformance.oracle.shapes import schema_faults, shortened

_FIGURES: Final = (
    "Usage.batch_size Usage.queue_wait_time ChatCompletion.prefill_time ChatCompletion.decode_time_arr "
    "PromptTokensDetails.cached_tokens"
)


@invariant(
    "same-answer",
    Scope.NAMED,
    "The same question has the same answer in whatever form it is asked",
    readings="S10 R1 R3",
)
def same_answer(seen: Seen, _: Any) -> Iterator[str]:
    told = {index: one.told() for index, one in seen.sequences.items()}
    for other in seen.others:
        theirs = {index: one.told() for index, one in other.sequences.items()}
        if told != theirs:
            yield f"{shortened(str(told))} is not {shortened(str(theirs))}"


@invariant(
    "another-answer",
    Scope.NAMED,
    "Another question has another answer",
    readings="R5",
)
def another_answer(seen: Seen, _: Any) -> Iterator[str]:
    told = {index: one.told() for index, one in seen.sequences.items()}
    for other in seen.unlike:
        if told == {index: one.told() for index, one in other.sequences.items()}:
            yield f"both have the answer {shortened(str(told))}"


@invariant(
    "prompt-tokens",
    Scope.NAMED,
    "The prompt has at least the given number of tokens",
    readings="R26",
    fields="Usage.prompt_tokens",
)
def prompt_tokens(seen: Seen, least: int) -> Iterator[str]:
    if seen.tells_usage and seen.usages[0]["prompt_tokens"] < least:
        yield f"prompt_tokens is {seen.usages[0]['prompt_tokens']}, less than {least}"


# The document speaks of the tokens of the prompt's text. It counts as a MUST all the same: nothing else in an answer
# shows that a medium was looked at, and not passed over.
@invariant(
    "longer-prompt",
    Scope.NAMED,
    "A prompt that has one more medium has more tokens",
    readings="S17 C19",
    fields="Usage.prompt_tokens",
)
def longer_prompt(seen: Seen, _: Any) -> Iterator[str]:
    for other in seen.shorter:
        if seen.tells_usage and other.tells_usage:
            told, less = seen.usages[0]["prompt_tokens"], other.usages[0]["prompt_tokens"]
            if told <= less:
                yield f"prompt_tokens is {told}; with one medium less it is {less}"


@invariant(
    "same-usage",
    Scope.NAMED,
    "The same question has the same number of tokens in whatever form it is asked",
    readings="S3",
    fields="Usage.prompt_tokens Usage.completion_tokens",
)
def same_usage(seen: Seen, _: Any) -> Iterator[str]:
    told = _counts(seen) if seen.tells_usage else None
    for other in seen.others:
        if told is not None and other.tells_usage and _counts(other) != told:
            yield f"prompt and answer have {told} tokens, in another form {_counts(other)}"


def _counts(seen: Seen) -> tuple[int, int]:
    """Tokens of the prompt, and of all sequences together."""
    return seen.usages[0]["prompt_tokens"], sum(usage["completion_tokens"] for usage in seen.usages)


@invariant(
    "ids-differ",
    Scope.NAMED,
    "Each request has an id of its own",
    readings="S1",
    fields="ChatCompletion.id ChatCompletionChunk.id",
)
def ids_differ(seen: Seen, _: Any) -> Iterator[str]:
    ids = [one.chunks[0]["id"] if one.exchange.is_stream else one.body["id"] for one in (seen, *seen.others)]
    if len(set(ids)) != len(ids):
        yield f"{len(ids)} requests have the ids {', '.join(ids)}"


@invariant(
    "finish",
    Scope.NAMED,
    "Every sequence ends for the given reason",
    fields="Choice.finish_reason ChunkChoice.finish_reason",
)
def finish(seen: Seen, reason: str) -> Iterator[str]:
    for index, one in seen.sequences.items():
        if one.finish != reason:
            yield f"choice {index} finishes with {one.finish!r}, not {reason!r}"


@invariant(
    "text",
    Scope.NAMED,
    "The first sequence has the given text",
    readings="S10 S11",
    fields="AssistantMessage.content ChunkDelta.content",
)
def text(seen: Seen, expected: str) -> Iterator[str]:
    if seen.sequences[0].text != expected:
        yield f"the text is {shortened(repr(seen.sequences[0].text))}, not {expected!r}"


@invariant(
    "text-without",
    Scope.NAMED,
    "The text does not contain the given one",
    readings="S11",
    fields="AssistantMessage.content",
)
def text_without(seen: Seen, unwanted: str) -> Iterator[str]:
    for index, one in seen.sequences.items():
        if unwanted in one.text:
            yield f"the text of choice {index} contains {unwanted!r}"


@invariant(
    "tokens",
    Scope.NAMED,
    "The first sequence has the given number of tokens, or as many as the server's own limit",
    readings="S3",
    fields="Usage.completion_tokens",
)
def tokens(seen: Seen, expected: int | str) -> Iterator[str]:
    if expected == "max_tokens":
        expected = seen.profile.max_tokens or 0
    if seen.tells_usage and seen.usages[0]["completion_tokens"] != expected:
        yield f"completion_tokens is {seen.usages[0]['completion_tokens']}, not {expected}"


@invariant(
    "usage-figures",
    Scope.NAMED,
    "The figures of the usage are those that the engine took",
    readings="S3 S4",
    fields=_FIGURES,
)
def usage_figures(seen: Seen, expected: dict[str, Any]) -> Iterator[str]:
    told = {**seen.usages[0], **seen.usages[0]["prompt_tokens_details"]}
    if not seen.exchange.is_stream:
        told |= {key: seen.body.get(key) for key in ("prefill_time", "decode_time_arr")}
    for key, value in expected.items():
        if told.get(key) != value:
            yield f"{key} is {told.get(key)}, not {value}"


@invariant(
    "calls",
    Scope.NAMED,
    "The first sequence calls the given function",
    readings="R20",
    fields="AssistantMessage.tool_calls ChunkDelta.tool_calls",
)
def calls(seen: Seen, name: str) -> Iterator[str]:
    names = [call["name"] for call in seen.sequences[0].calls]
    if name not in names:
        yield f"the calls are {names}"


@invariant(
    "reasoning",
    Scope.NAMED,
    "The first sequence has the given chain of thought",
    readings="S14",
    fields="AssistantMessage.reasoning_content ChunkDelta.reasoning_content CompletionTokensDetails.reasoning_tokens",
)
def reasoning(seen: Seen, wanted: str | bool) -> Iterator[str]:
    told = seen.sequences[0].reasoning
    if bool(told) != bool(wanted) or (isinstance(wanted, str) and told != wanted):
        yield f"reasoning_content is {shortened(repr(told))}"


@invariant(
    "content-json",
    Scope.NAMED,
    "The text is JSON that keeps the given schema, unless the length cut it off",
    readings="R25",
    fields="AssistantMessage.content",
)
def content_json(seen: Seen, schema: dict[str, Any]) -> Iterator[str]:
    one = seen.sequences[0]
    if one.finish == "length":
        return
    try:
        jsonschema_rs.validate(schema, parse_json(one.text))
    except (NotJson, jsonschema_rs.ValidationError) as error:
        yield f"{shortened(repr(one.text))}: {error}"


@invariant("header", Scope.NAMED, "The response has the given headers")
def header(seen: Seen, expected: dict[str, str]) -> Iterator[str]:
    for name, value in expected.items():
        if value.lower() not in seen.exchange.headers.get(name.lower(), "").lower():
            yield f"{name} is {seen.exchange.headers.get(name.lower())!r}, not {value!r}"


@invariant("plane-schema", Scope.NAMED, "The body keeps the schema of its path", readings="C11 C12")
def plane_schema(seen: Seen, component: str) -> Iterator[str]:
    try:
        body = seen.body
    except NotJson as error:
        yield f"the body is no JSON: {error}"
        return
    yield from schema_faults(seen.contract, component, body)


@invariant(
    "lists-model",
    Scope.NAMED,
    "The served model comes first, as its own root and without a parent",
    readings="C11",
    fields="ModelList.data Model.id Model.root Model.parent",
)
def lists_model(seen: Seen, _: Any) -> Iterator[str]:
    first = seen.body["data"][0]
    if (first["id"], first["root"], first["parent"]) != (seen.model, seen.model, None):
        yield f"the first model is {shortened(str(first))}"
    ids = [one["id"] for one in seen.body["data"]]
    if len(set(ids)) != len(ids):
        yield f"the ids are {ids}"


@invariant("is-model", Scope.NAMED, "The model told of is the one asked for", readings="C11", fields="Model.id")
def is_model(seen: Seen, _: Any) -> Iterator[str]:
    if seen.body["id"] != seen.model:
        yield f"the id is {seen.body['id']!r}"


@invariant("body-contains", Scope.NAMED, "The body contains the given text")
def body_contains(seen: Seen, expected: str) -> Iterator[str]:
    if expected.encode() not in seen.exchange.body:
        yield f"the body does not contain {expected!r}"
