"""Servers with features that a good one may lack, each wrong in one way.

They are made up here from plain answers of the good server: calls of functions, a chain of thought, answers
bound to JSON, cumulative content. ``GOOD`` has them as the contract wants them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any, Final

from tests.conformance.mutants.faults import DONE, Json, Mutant, choice_of, compact, delta_of, is_finish, refusing
from tests.conformance.mutants.proxy import Answer, Fault, Forward, Question

CALLS: Final = frozenset({"tools", "constrained"})
REASONING: Final = frozenset({"reasoning"})
FULL_TEXT: Final = frozenset({"full-text"})

Change = Callable[[Any], None]


def _nothing(value: Any) -> None:
    """No fault."""


def _made_of(make: Callable[[Json], Callable[[Any], Any] | None], without: tuple[str, ...] = ()) -> Fault:
    """``make`` looks at the request and says what is made of the plain answer, of its body or its list of chunks."""

    async def fault(question: Question, forward: Forward) -> Answer:
        fields = question.fields
        change = None if fields is None else make(fields)
        if fields is None or change is None:
            return await forward(question)
        plain = {name: value for name, value in fields.items() if name not in without}
        answer = await forward(question.with_fields(plain))
        if answer.status != 200:
            return answer
        if not answer.is_stream:
            body = json.loads(answer.body)
            return answer.with_body(compact(change(body) or body))
        frames = answer.body.removesuffix(b"\n\n").split(b"\n\n")
        chunks = change([json.loads(frame.removeprefix(b"data: ")) for frame in frames if frame != DONE])
        told = [*(b"data: " + compact(chunk) for chunk in chunks), DONE]
        return answer.with_body(b"".join(frame + b"\n\n" for frame in told))

    return fault


# ------------------------------------------------------------------------------------------------- calls of functions


def _call() -> Json:
    return {
        "function": {"arguments": '{"city":"Paris"}', "name": "get_weather"},
        "id": "call_a1B2c3D4",
        "type": "function",
    }


def _pieces(call: Json) -> list[Json]:
    function = call["function"]
    first = {"index": 0, "id": call["id"], "type": "function", "function": {"name": function["name"], "arguments": ""}}
    return [first, {"index": 0, "function": {"arguments": function["arguments"]}}]


def calling(
    whole: Change = _nothing, pieces: Change = _nothing, *, finish: str = "tool_calls", even_if_none: bool = False
) -> Fault:
    """Functions on offer are called. ``whole`` changes a choice's calls, ``pieces`` what streams say of them."""

    def in_body(body: Json) -> None:
        calls = [_call()]
        whole(calls)
        for choice in body["choices"]:
            choice["message"].update(content="", tool_calls=calls)
            choice["finish_reason"] = finish

    def in_chunks(chunks: list[Json]) -> list[Json]:
        told = _pieces(_call())
        pieces(told)
        opening, last = chunks[0], chunks[-1]
        middle = [copy.deepcopy(opening) for _ in told]
        for chunk, piece in zip(middle, told, strict=True):
            choice_of(chunk)["delta"] = {"role": "assistant", "tool_calls": [piece]}
        delta_of(last)["content"] = ""
        choice_of(last)["finish_reason"] = finish
        return [opening, *middle, last]

    def make(fields: Json) -> Callable[[Any], Any] | None:
        if not fields.get("tools"):
            return None
        if fields.get("tool_choice") == "none" and not even_if_none:
            return None
        return in_chunks if fields.get("stream") else in_body

    return _made_of(make, without=("tools", "tool_choice"))


def _unknown_function(calls: list[Json]) -> None:
    calls.append({**_call(), "id": "call_e5F6g7H8", "function": {"arguments": "{}", "name": "launch"}})


def _another_function(calls: list[Json]) -> None:
    calls[0]["function"]["name"] = "launch"


def _no_object(calls: list[Json]) -> None:
    calls[0]["function"]["arguments"] = "Paris"


def _same_id(calls: list[Json]) -> None:
    calls.append(_call())


def _name_again(pieces: list[Json]) -> None:
    pieces[1]["function"] = {"name": "get_weather", **pieces[1]["function"]}


CALLED: Final = (
    Mutant("another function called", calling(_another_function), "whole.calls.named", "calls", CALLS),
    Mutant(
        "a function called that is not on offer", calling(_unknown_function), "whole.calls.named", "calls-known", CALLS
    ),
    Mutant("arguments that are no JSON", calling(_no_object), "whole.calls.named", "calls-arguments", CALLS),
    Mutant("two calls of one id", calling(_same_id), "whole.calls.named", "calls-ids", CALLS),
    Mutant("a call that finishes with stop", calling(finish="stop"), "whole.calls.named", "calls-finish", CALLS),
    Mutant("a function's name in every piece", calling(pieces=_name_again), "stream.calls", "call-deltas", CALLS),
    Mutant(
        "a call though none is wanted", calling(even_if_none=True), "whole.calls.none", "calls-only-with-tools", CALLS
    ),
)

# ----------------------------------------------------------------------------------------------------- chain of thought


def thinking(thought: str = "Colours.", num_tokens: int = 1) -> Fault:
    """Whole answers have a chain of thought unless it is switched off."""

    def in_body(body: Json) -> Json:
        for choice in body["choices"]:
            message = choice["message"]
            choice["message"] = {"role": "assistant", "content": message["content"]} | (
                {"reasoning_content": thought, "tool_calls": []} if thought else {"tool_calls": []}
            )
        usage: Json = {}
        for name, value in body["usage"].items():
            usage[name] = value
            if name == "completion_tokens":
                usage["completion_tokens_details"] = {"reasoning_tokens": num_tokens}
        return {**body, "usage": usage}

    def make(fields: Json) -> Callable[[Any], Any] | None:
        is_off = (fields.get("chat_template_kwargs") or {}).get("enable_thinking") is False
        return None if is_off or fields.get("stream") else in_body

    return _made_of(make)


THOUGHT: Final = (
    Mutant("a chain of thought left out", thinking("", 0), "whole.reasoning", "reasoning", REASONING),
    Mutant("thought that is not counted", thinking(num_tokens=0), "whole.reasoning", "usage-reasoning", REASONING),
    Mutant("more thought than there is", thinking(num_tokens=1000), "whole.reasoning", "usage-reasoning", REASONING),
)

# -------------------------------------------------------------------------------------------------------- bound answers


def bound_to(text: str) -> Fault:
    """Answers bound to JSON are this text."""

    def in_body(body: Json) -> None:
        for choice in body["choices"]:
            choice["message"]["content"] = text
            choice["finish_reason"] = "stop"

    return _made_of(lambda fields: in_body if fields.get("response_format") else None, without=("response_format",))


BOUND: Final = (
    Mutant("an answer that is not bound", bound_to('{"n": "one"}'), "whole.json-schema", "content-json", CALLS),
)

# --------------------------------------------------------------------------------------------------- cumulative content


def cumulative(*, ends_with: str = "") -> Fault:
    """Streams have the text so far in every delta, and all of it in ``full_text``, with ``ends_with`` after it."""

    def in_chunks(chunks: list[Json]) -> list[Json]:
        text = ""
        for number, chunk in enumerate(chunks):
            text += delta_of(chunk)["content"]
            delta_of(chunk)["content"] = text
            if is_finish(chunk):
                names = {name: chunk[name] for name in ("id", "object", "created", "model")}
                chunks[number] = {**names, "full_text": text + ends_with, **chunk}
        return chunks

    return _made_of(lambda fields: in_chunks if fields.get("stream") else None)


CUMULATIVE: Final = (
    Mutant(
        "a full text that is not the content", cumulative(ends_with="!"), "stream.full-text", "full-text", FULL_TEXT
    ),
)

IMAGE: Final = frozenset({"image"})
_unlisted: Final = refusing(
    lambda fields: "image_url" in str(fields.get("messages")), "the host of messages[0].content[0].image_url"
)

GOOD: Final[dict[str, tuple[Fault, frozenset[str]]]] = {
    "whole.calls.named": (calling(), CALLS),
    "whole.calls.none": (calling(), CALLS),
    "stream.calls": (calling(), CALLS),
    "whole.reasoning": (thinking(), REASONING),
    "whole.json-schema": (bound_to('{"n": 1}'), CALLS),
    "stream.full-text": (cumulative(), FULL_TEXT),
    "request.image.unlisted-host": (_unlisted, IMAGE),
    "request.image.unlisted-address": (_unlisted, IMAGE),
}
"""By the case that they pass."""

MUTANTS: Final = (*CALLED, *THOUGHT, *BOUND, *CUMULATIVE)
