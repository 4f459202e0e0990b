"""Ways to write a fault: what is changed in a request, in an answer, or decided without asking the good server."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tests.conformance.mutants.proxy import Answer, Fault, Forward, Question

Json = dict[str, Any]
FRAME_END: Final = b"\n\n"
DONE: Final = b"data: [DONE]"


@dataclass(frozen=True)
class Mutant:
    """A server with one fault."""

    name: str
    """The fault, in a few words."""
    fault: Fault
    case: str
    """The case of the suite that must fail."""
    invariant: str
    """What that case must find broken."""
    features: frozenset[str] = frozenset()
    """What the server can do beside what the good one can."""
    lacks: frozenset[str] = frozenset()
    """What it cannot do though the good one can."""
    bounds: Mapping[str, float] = field(default_factory=dict)
    """Of the run, by their names in ``Settings``."""


def compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


# ---------------------------------------------------------------------------------------------------------- requests


def on_request(change: Callable[[Json], Json]) -> Fault:
    """The good server gets other fields than the client sent."""

    async def fault(question: Question, forward: Forward) -> Answer:
        fields = question.fields
        return await forward(question if fields is None else question.with_fields(change(fields)))

    return fault


def accepting(when: Callable[[Json], bool], **instead: Any) -> Fault:
    """What should be refused is taken: the good server gets ``instead`` of these fields."""
    return on_request(lambda fields: {**fields, **instead} if when(fields) else fields)


def refusing(when: Callable[[Json], bool], field: str) -> Fault:
    """What should be taken is refused, in the right words."""

    async def fault(question: Question, forward: Forward) -> Answer:
        fields = question.fields
        return refusal(f"{field} is refused") if fields is not None and when(fields) else await forward(question)

    return fault


def refusal(text: str) -> Answer:
    body = compact({"error": text, "error_type": "Input Validation Error"})
    headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
    return Answer(422, headers, body)


# ----------------------------------------------------------------------------------------------------------- answers


def on_answer(change: Callable[[Question, Answer], Answer], path: str = "/v1/chat/completions") -> Fault:
    """Every answer at ``path``."""

    async def fault(question: Question, forward: Forward) -> Answer:
        answer = await forward(question)
        return change(question, answer) if question.path == path else answer

    return fault


def on_completion(change: Callable[[Json, Json], object]) -> Fault:
    """Whole answers: ``change(body, fields of the request)`` works on the body in place."""

    def changed(question: Question, answer: Answer) -> Answer:
        if answer.status != 200 or answer.is_stream:
            return answer
        body = json.loads(answer.body)
        change(body, question.fields or {})
        return answer.with_body(compact(body))

    return on_answer(changed)


def on_choices(change: Callable[[Json], object]) -> Fault:
    """Each choice of whole answers."""

    def changed(body: Json, fields: Json) -> None:
        for choice in body["choices"]:
            change(choice)

    return on_completion(changed)


def on_entries(change: Callable[[list[Json]], object]) -> Fault:
    """The log-probabilities of each choice of whole answers that have them."""

    def changed(choice: Json) -> None:
        if choice["logprobs"] is not None:
            change(choice["logprobs"]["content"])

    return on_choices(changed)


def on_refusal(change: Callable[[Answer], Answer]) -> Fault:
    """Answers to requests that fail validation."""
    return on_answer(lambda question, answer: change(answer) if answer.status == 422 else answer)


def on_success(change: Callable[[Answer], Answer], *, stream: bool) -> Fault:
    """Streams, or whole answers."""

    def changed(question: Question, answer: Answer) -> Answer:
        return change(answer) if answer.status == 200 and answer.is_stream is stream else answer

    return on_answer(changed)


def on_frames(change: Callable[[list[bytes]], list[bytes]]) -> Fault:
    """The events of streams, without the blank lines between them."""

    def changed(answer: Answer) -> Answer:
        frames = answer.body.removesuffix(FRAME_END).split(FRAME_END)
        return answer.with_body(b"".join(frame + FRAME_END for frame in change(frames)))

    return on_success(changed, stream=True)


def on_chunks(change: Callable[[list[Json]], Any]) -> Fault:
    """The chunks of streams: ``change`` returns others, or None when it has changed them in place."""

    def changed(frames: list[bytes]) -> list[bytes]:
        chunks = [json.loads(frame.removeprefix(b"data: ")) for frame in frames if frame != DONE]
        others = change(chunks)
        return [*(b"data: " + compact(chunk) for chunk in (chunks if others is None else others)), DONE]

    return on_frames(changed)


def on_each_chunk(change: Callable[[Json], object]) -> Fault:
    def changed(chunks: list[Json]) -> None:
        for chunk in chunks:
            change(chunk)

    return on_chunks(changed)


def status(number: int) -> Callable[[Answer], Answer]:
    return lambda answer: replace(answer, status=number)


# ------------------------------------------------------------------------------------------------------------- parts


def choice_of(chunk: Json) -> Json:
    choice: Json = chunk["choices"][0]
    return choice


def delta_of(chunk: Json) -> Json:
    delta: Json = choice_of(chunk)["delta"]
    return delta


def is_finish(chunk: Json) -> bool:
    return choice_of(chunk)["finish_reason"] is not None


def with_text(chunks: list[Json]) -> list[Json]:
    return [chunk for chunk in chunks if delta_of(chunk)["content"]]


def turned(value: Json) -> Json:
    """The same keys the other way round."""
    return dict(reversed(value.items()))
