"""Asks the oracle about the exchanges of a case."""

from __future__ import annotations

from typing import Final

from conformance.case import Case, Expectation, Kind, Level
from conformance.oracle import golden, http, named, openai_wire, stream, tokens, tools, whole
from conformance.oracle.registry import Finding, Scope, ask, ask_all
from conformance.oracle.seen import Seen
from conformance.oracle.shapes import names_place

BAD_REQUEST: Final = 400
BETWEEN: Final = ("same-answer", "same-usage", "ids-differ")
"""Asked of answers to one question in several forms."""
APART: Final = "another-answer"
"""Asked of answers to questions that must be answered otherwise."""
LONGER: Final = "longer-prompt"
"""Asked of an answer to a question that has something more than another one."""
THEMES: Final = (golden, http, named, openai_wire, stream, tokens, tools, whole)
"""The modules that fill the registry."""


def judge(case: Case, seen: Seen) -> list[Finding]:
    """Everything that does not hold. Raises what an invariant stumbled over, unless a MUST is known not to hold: it may
    hide one."""
    findings = _findings(case, seen)
    stumbles = [error for one in (seen, *seen.others, *seen.unlike, *seen.shorter) for error in one.stumbles]
    if stumbles and not any(finding.level is Level.MUST for finding in findings):
        raise stumbles[0]
    return findings


def _named(places: tuple[str, ...], seen: Seen) -> str:
    """The one of ``places`` that the answer names, else the first."""
    text = seen.exchange.body.decode(errors="replace")
    return next((place for place in places if names_place(text, place)), places[0])


def _findings(case: Case, seen: Seen) -> list[Finding]:
    expect = case.expect
    if expect.unless and seen.exchange.status != expect.status:
        expect = Expectation(kind=Kind.REFUSED, status=seen.contract.dialect.invalid, names=_named(expect.unless, seen))
        seen.is_excused = True
    seen.status, seen.names = expect.status, expect.names
    findings = ask_all(Scope.HTTP, seen)
    if seen.exchange.status is None or seen.exchange.trouble is not None:
        return findings
    if seen.exchange.status != expect.status:
        return findings + (ask_all(Scope.REFUSAL, seen) if seen.exchange.status >= BAD_REQUEST else [])
    findings += _of_kind(expect, seen)
    for check in expect.checks:
        findings += ask(check.id, seen, check.argument)
    for other in (*seen.others, *seen.unlike, *seen.shorter):
        findings += ask_all(Scope.HTTP, other) or _of_answer(other)
    if seen.unlike:
        findings += ask(APART, seen)
    if seen.shorter:
        findings += ask(LONGER, seen)
    return findings + ([finding for name in BETWEEN for finding in ask(name, seen)] if seen.others else [])


def _of_kind(expect: Expectation, seen: Seen) -> list[Finding]:
    match expect.kind:
        case Kind.ANSWER:
            return _of_answer(seen)
        case Kind.REFUSED:
            return ask_all(Scope.REFUSAL, seen)
        case Kind.FAILED:
            return [*ask("frame-bytes", seen), *ask("chunk-json", seen), *ask_all(Scope.FAILED, seen)]
        case Kind.PLANE:
            return [] if expect.component is None else ask("plane-schema", seen, expect.component)


def _of_answer(seen: Seen) -> list[Finding]:
    return ask_all(Scope.STREAM if seen.is_stream else Scope.WHOLE, seen) + ask_all(Scope.ANSWER, seen)
