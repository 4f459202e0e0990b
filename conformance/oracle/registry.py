"""Invariants: a predicate with an id, a level, and where in the contract it is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from conformance.case import Level
from conformance.dialects import DIALECTS
from conformance.oracle.seen import Seen

Predicate = Callable[[Seen, Any], Iterator[str]]
"""What is wrong, a text for each fault. The second argument is what a case compares with."""


class Scope(StrEnum):
    """Of which responses an invariant is asked."""

    HTTP = "any response"
    WHOLE = "whole answers"
    STREAM = "streams"
    ANSWER = "whole answers and streams"
    REFUSAL = "refusals"
    FAILED = "streams that break off"
    NAMED = "cases that name it"


@dataclass(frozen=True)
class Invariant:
    """What must hold."""

    id: str
    says: str
    scope: Scope
    level: Level
    readings: tuple[str, ...]
    fields: tuple[str, ...]
    """Fields of answers that it speaks of, as ``Component.field``."""
    dialects: tuple[str, ...]
    """In which it holds."""
    predicate: Predicate


@dataclass(frozen=True)
class Finding:
    """An invariant that does not hold, and why."""

    invariant: str
    level: Level
    text: str


INVARIANTS: Final[dict[str, Invariant]] = {}
MAX_FAULTS: Final = 5
"""Told of one invariant and one answer."""


def invariant(
    name: str,
    scope: Scope,
    says: str,
    *,
    readings: str = "",
    fields: str = "",
    level: Level = Level.MUST,
    dialects: tuple[str, ...] = DIALECTS,
) -> Callable[[Predicate], Predicate]:
    """Register a predicate under ``name``. ``readings`` and ``fields`` are separated by blanks."""

    def register(predicate: Predicate) -> Predicate:
        assert name not in INVARIANTS, name
        INVARIANTS[name] = Invariant(
            name, says, scope, level, tuple(readings.split()), tuple(fields.split()), dialects, predicate
        )
        return predicate

    return register


def ask(name: str, seen: Seen, argument: Any = None) -> list[Finding]:
    """What one invariant finds.

    A predicate reads answers as the schema has them, and may stumble over others: the schema's findings tell those.
    What it stumbled over is kept: where nothing has found fault, it is the suite's.
    """
    rule = INVARIANTS[name]
    findings = []
    try:
        for text in rule.predicate(seen, argument):
            findings.append(Finding(name, rule.level, text))
            if len(findings) == MAX_FAULTS:
                break
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        seen.stumbles.append(error)
    return findings


def ask_all(scope: Scope, seen: Seen) -> list[Finding]:
    """What the invariants of a scope find that hold in the dialect of the answer."""
    spoken = seen.contract.dialect.name
    rules = [rule for rule in INVARIANTS.values() if rule.scope is scope and spoken in rule.dialects]
    return [finding for rule in rules for finding in ask(rule.id, seen)]
