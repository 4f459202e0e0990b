"""Which lines of the document and which fields of answers no case looks at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from conformance.case import CHAT, Case, Kind
from conformance.contract import Contract, lines_of
from conformance.judge import APART, BETWEEN, LONGER
from conformance.oracle.registry import INVARIANTS, Scope


@dataclass(frozen=True)
class Coverage:
    """What has a case, and what has none."""

    lines: dict[int, list[str]]
    """Line of the document -> ids of the cases that cite it."""
    fields: dict[str, list[str]]
    """``Component.field`` of an answer -> the invariants that speak of it, or the cases that cite its line."""
    rules: dict[str, list[str]]
    """Rule -> its cases."""
    readings: dict[str, list[str]]
    """Row of the table of dialects -> the cases and invariants that cite it."""
    idle: list[str]
    """Invariants that no case asks."""

    @property
    def gaps(self) -> list[str]:
        """What has no case, in words."""
        gaps = [f"line {line} of the document has no case" for line, cases in self.lines.items() if not cases]
        gaps += [f"the field {name} has neither an invariant nor a case" for name, by in self.fields.items() if not by]
        gaps += [f"the rule {name} has no two cases" for name, cases in self.rules.items() if len(cases) < 2]
        gaps += [
            f"the reading {name} has neither a case nor an invariant" for name, by in self.readings.items() if not by
        ]
        return gaps + [f"the invariant {name} is asked by no case" for name in self.idle]


def coverage(contract: Contract, cases: Sequence[Case]) -> Coverage:
    """What ``cases`` cover of the contract."""
    lines = {line: [case.id for case in cases if line in case.lines] for line in sorted(contract.lines)}
    asked = {check.id for case in cases for check in case.expect.checks}
    asked |= set(BETWEEN) if any(case.expect.same_as for case in cases) else set()
    asked |= {APART} if any(case.expect.unlike for case in cases) else set()
    asked |= {LONGER} if any(case.expect.longer_than for case in cases) else set()
    asked |= {"plane-schema"} if any(case.expect.component for case in cases) else set()
    return Coverage(
        lines=lines,
        fields={name: _by(contract, name, cases, asked) for name in contract.answer_fields},
        rules={
            rule["id"]: [case.id for case in cases if case.id.startswith(f"rules.{rule['id']}.")]
            for rule in contract.document["paths"][CHAT]["post"]["x-rules"]
        },
        readings={name: _citing(contract, name, cases) for name in contract.readings if name.startswith("D")},
        idle=[
            rule.id
            for rule in INVARIANTS.values()
            if rule.scope is Scope.NAMED and rule.id not in asked and contract.dialect.name in rule.dialects
        ],
    )


def _citing(contract: Contract, reading: str, cases: Sequence[Case]) -> list[str]:
    rules = [rule for rule in INVARIANTS.values() if rule.scope is not Scope.NAMED]
    by = [rule.id for rule in rules if reading in rule.readings and contract.dialect.name in rule.dialects]
    return by + [case.id for case in cases if reading in case.readings]


def _by(contract: Contract, name: str, cases: Sequence[Case], asked: set[str]) -> list[str]:
    """Invariants in use that name the field; else cases that cite its lines; else the cases of a path that has it."""
    by = [
        rule.id
        for rule in INVARIANTS.values()
        if name in rule.fields and (rule.scope is not Scope.NAMED or rule.id in asked)
    ]
    if not by:
        cited = set(lines_of(contract.field(name)))
        by = [case.id for case in cases if cited & set(case.lines)]
    if not by:
        by = [
            case.id
            for case in cases
            if case.expect.kind is Kind.PLANE
            and case.expect.component is not None
            and name.partition(".")[0] in contract.reachable(case.expect.component)
        ]
    return by
