"""Answers against the golden transcripts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, Final

from conformance.case import Level
from conformance.dialects import VLLM
from conformance.golden_cases import Transcript, transcripts
from conformance.oracle.registry import Scope, invariant
from conformance.oracle.seen import Seen, parse_json
from conformance.oracle.shapes import shortened

_CALL_ID: Final = re.compile(rb'"id":"call_([^"]{8,})"')
_ID: Final = re.compile(rb'"id":"endpoint_common_\d+"')
_CREATED: Final = re.compile(rb'"created":\d+')
_MODEL: Final = re.compile(rb'("created":\d+,"model":)"(?:[^"\\]|\\.)*"')


@invariant(
    "transcript", Scope.NAMED, "The bytes are those of the transcript, but for id, created and model",
    readings="S5 E11", dialects=(VLLM,),
)  # fmt: skip
def transcript(seen: Seen, name: str) -> Iterator[str]:
    """id, created and model are the answer's own first ones, so that a change of them within a stream is found."""
    first = seen.chunks[0] if seen.exchange.is_stream else seen.body
    told = {key: json.dumps(first[key], ensure_ascii=False).encode() for key in ("id", "created", "model")}
    expected = _ID.sub(b'"id":' + told["id"], transcripts()[name].expected)
    expected = _CREATED.sub(b'"created":' + told["created"], expected)
    expected = _MODEL.sub(lambda found: found.group(1) + told["model"], expected)
    body, expected = _numbered(seen.exchange.body), _numbered(expected)
    if body != expected:
        yield _difference(body, expected)


def _numbered(body: bytes) -> bytes:
    """With numbers for the ids of calls, which are random: the same id has the same number."""
    numbers: dict[bytes, int] = {}
    return _CALL_ID.sub(lambda found: b'"id":"call_%d"' % numbers.setdefault(found.group(1), len(numbers)), body)


def _difference(body: bytes, expected: bytes) -> str:
    """Where two bodies part."""
    pairs = enumerate(zip_longest(body, expected))
    place = next(number for number, (one, other) in pairs if one != other)
    around = slice(max(0, place - 20), place + 60)
    return f"at byte {place} there is {body[around]!r} instead of {expected[around]!r}"


@invariant(
    "transcript-shape", Scope.NAMED, "Keys, their order and types are those of the transcript", level=Level.SHOULD,
    dialects=(VLLM,),
)  # fmt: skip
def transcript_shape(seen: Seen, name: str) -> Iterator[str]:
    one = transcripts()[name]
    bodies = seen.chunks if seen.exchange.is_stream else [seen.body]
    known = {shape(body) for body in _bodies(one)}
    for odd in {shape(body) for body in bodies} - known:
        yield f"a body has the shape {shortened(odd, 400)}"
    for missing in known - {shape(body) for body in bodies} if not _is_brief(seen) else ():
        yield f"no body has the shape {shortened(missing, 400)}"


def _is_brief(seen: Seen) -> bool:
    """A stream whose finish came with its only text need not have deltas between opening and finish."""
    return seen.exchange.is_stream and len(seen.chunks) <= 2 * seen.num_choices


def _bodies(one: Transcript) -> Iterator[Any]:
    if not one.is_stream:
        yield parse_json(one.expected)
        return
    for frame in one.expected.split(b"\n\n"):
        if frame.startswith(b"data: {"):
            yield parse_json(frame.removeprefix(b"data: "))


def shape(value: Any) -> str:
    """Keys in their order and the types of values; of a list the shapes of its items, each once."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{shape(member)}" for key, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + "|".join(sorted({shape(member) for member in value})) + "]"
    if isinstance(value, bool | None):
        return str(value).lower()
    return "text" if isinstance(value, str) else "number"
