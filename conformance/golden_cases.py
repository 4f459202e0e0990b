"""The golden transcripts: the document's text examples, as exact bytes and as shapes.

Each ``golden/<name>.yaml`` says what is asked (an example request of the contract, or one of its own), what a scripted
engine generates, and what a process would have counted and seen on its clock; ``golden/<name>.json`` or ``.sse`` is the
body that must come. Where the document's own bytes differ, ``spec/docs/interpretations.md`` says why (E1 to E13).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from conformance.bodies import Body, Change
from conformance.case import Call, Case, Check, Expectation, Kind, Level, marker
from conformance.files import GOLDEN, SPEC, read_yaml

_LINES: Final = {False: (584, 588, 610, 620, 621), True: (625, 641, 643, 662)}
"""Of the document's tables: whole answers, chunks."""


_FEW: Final = 16
"""Tokens that show a shape."""


@dataclass(frozen=True)
class Transcript:
    """What is asked, said and expected."""

    name: str
    request: Body
    reply: dict[str, Any]
    """Of the scripted engine, without what it is matched by."""
    number: int
    """The id's."""
    created: int
    full_text: bool
    expected: bytes
    is_stream: bool
    template: str | None
    """The chat template of a model that thinks; None: any will do."""


@cache
def transcripts() -> dict[str, Transcript]:
    """All of them, by name."""
    return {path.stem: _transcript(path.stem, read_yaml(path)) for path in sorted(GOLDEN.glob("*.yaml"))}


def thinking_template() -> str:
    """The chat template of the transcripts of a model that thinks; they all have the same."""
    (template,) = {one.template for one in transcripts().values() if one.template is not None}
    return template


def _transcript(name: str, entry: dict[str, Any]) -> Transcript:
    """Files end with a newline for the sake of editors; a JSON body has none."""
    stream = GOLDEN / f"{name}.sse"
    is_stream = stream.exists()
    expected = stream.read_bytes() if is_stream else (GOLDEN / f"{name}.json").read_bytes().removesuffix(b"\n")
    example = json.loads((SPEC / "examples" / entry["example"]).read_text("utf-8")) if "example" in entry else {}
    merged = {**example, **entry.get("fields", {})}
    request = {key: value for key, value in merged.items() if key not in entry.get("without", ())}
    full_text = entry.get("full_text", False)
    return Transcript(
        name=name,
        request=request,
        reply=entry["reply"],
        number=entry["number"],
        created=entry["created"],
        full_text=full_text,
        expected=expected,
        is_stream=is_stream,
        template=entry.get("template"),
    )


def golden_cases() -> Iterator[Case]:
    """Two cases for each transcript: its bytes, for a server that runs the suite's script, and its shape for others."""
    for name, one in transcripts().items():
        request = {key: value for key, value in one.request.items() if key != "model"}
        several = {"several"} if request.get("best_of") or request.get("n") else set()
        tools = {"tools"} if one.request.get("tools") else set()
        thought = {"reasoning"} if one.template is not None else set()
        needs = frozenset(several | tools | thought | _way_of_streaming(one))
        kind = "stream" if one.is_stream else "answer"
        said = [{"role": "system", "content": marker(f"golden.{name}")}, *request["messages"]]
        yield Case(
            id=f"golden.{name}",
            theme="golden",
            says=f"The transcript {name}: the {kind} byte for byte",
            lines=_LINES[one.is_stream],
            readings=("S5", "E11") if one.is_stream else ("S2", "E11"),
            level=Level.SHOULD,  # bytes stand on S5 and E11: in JSON neither blanks nor the order of keys mean anything
            needs=needs | {"scripted"},
            call=Call(change=Change(put={**request, "messages": said}, drop=_idle(request))),
            expect=Expectation(kind=Kind.ANSWER, checks=(Check("transcript", name),)),
            reply=one.reply,
        )
        if tools or thought:
            continue  # whether and how another model calls them or thinks is its own affair
        yield Case(
            id=f"golden.{name}.shape",
            theme="golden",
            says=f"The transcript {name}: the shape of the {kind}",
            lines=_LINES[one.is_stream],
            level=Level.SHOULD,
            needs=needs,
            call=Call(change=Change(put={**request, "max_tokens": min(request.get("max_tokens", _FEW), _FEW)})),
            expect=Expectation(kind=Kind.ANSWER, checks=(Check("transcript-shape", name),)),
        )


def _way_of_streaming(one: Transcript) -> set[str]:
    """A server streams cumulative text or not, by its settings."""
    if not one.is_stream:
        return set()
    return {"full-text"} if one.full_text else {"incremental"}


def _idle(request: Body) -> tuple[str, ...]:
    """What the base request has and the example has not."""
    return () if "max_tokens" in request else ("max_tokens",)
