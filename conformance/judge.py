"""Asks the oracle about the exchanges of a case."""

from __future__ import annotations

from conformance.case import Case, Expectation, Kind
from conformance.oracle import golden, http, named, stream, tokens, tools, whole
from conformance.oracle.registry import Finding, Scope, ask, ask_all
from conformance.oracle.seen import Seen

THEMES = (golden, http, named, stream, tokens, tools, whole)
"""The modules that fill the registry."""


def judge(case: Case, seen: Seen) -> list[Finding]:
    """Everything that does not hold."""
    expect = case.expect
    if expect.unless is not None and seen.exchange.status != expect.status:
        expect = Expectation(kind=Kind.REFUSED, status=422, names=expect.unless)
    seen.status, seen.names = expect.status, expect.names
    findings = ask_all(Scope.HTTP, seen)
    if seen.exchange.status is None or seen.exchange.trouble is not None:
        return findings
    if seen.exchange.status != expect.status:
        return findings + ([] if seen.exchange.status < 400 else ask_all(Scope.REFUSAL, seen))
    findings += _of_kind(expect, seen)
    for check in expect.checks:
        findings += ask(check.id, seen, check.argument)
    for other in seen.others:
        findings += _of_other(other)
    if seen.others:
        findings += ask("same-answer", seen)
    return findings


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
    """The schema is asked first: the others count on it."""
    findings = ask_all(Scope.STREAM if seen.is_stream else Scope.WHOLE, seen)
    return findings + ask_all(Scope.ANSWER, seen)


def _of_other(seen: Seen) -> list[Finding]:
    findings = ask_all(Scope.HTTP, seen)
    if not findings:
        findings = _of_answer(seen)
    seen.is_well_formed = seen.is_well_formed and not findings
    return findings
