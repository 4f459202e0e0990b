"""What a run finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from conformance.case import Case, Level
from conformance.client import Exchange
from conformance.dialects import VLLM
from conformance.oracle.registry import Finding


class Result(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    """The server does not conform: a MUST."""
    WARN = "warn"
    """The server does not conform: a SHOULD."""
    ERROR = "error"
    """The suite is at fault."""
    UNSUPPORTED = "unsupported"
    """The server lacks a capability that the case needs."""
    UNREACHABLE = "unreachable"
    """No answer could be had, or the time for the run was over."""


class Exit(IntEnum):
    CONFORMS = 0
    FAILED = 1
    COULD_NOT_TEST = 2


@dataclass(frozen=True)
class CaseResult:
    """One line of the report."""

    case: Case
    result: Result
    message: str = ""
    findings: tuple[Finding, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    """What was sent and what came back, the case's own first."""

    @property
    def invariants(self) -> list[str]:
        """Ids of the invariants that do not hold."""
        return list(dict.fromkeys(finding.invariant for finding in self.findings))


@dataclass(frozen=True)
class Capability:
    """Whether the server can do something, and how that is known."""

    name: str
    present: bool
    evidence: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """A whole run."""

    base_url: str
    model: str
    dialect: str = VLLM
    """Of the server."""
    started: str
    """ISO 8601, UTC."""
    duration_s: float
    capabilities: Mapping[str, Capability]
    cases: list[CaseResult]
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    """Texts that must appear in no file."""

    @property
    def counts(self) -> Counter[Result]:
        return Counter(one.result for one in self.cases)

    @property
    def exit_code(self) -> Exit:
        """What could not be tested outweighs a MUST that failed: the verdict is not complete, as where nothing was
        asked."""
        counts = self.counts
        if counts[Result.ERROR] or counts[Result.UNREACHABLE] or set(counts) <= {Result.UNSUPPORTED}:
            return Exit.COULD_NOT_TEST
        return Exit.FAILED if counts[Result.FAIL] else Exit.CONFORMS


def judged(case: Case, findings: list[Finding], exchanges: tuple[Exchange, ...]) -> CaseResult:
    """The verdict over what the oracle found."""
    if not findings:
        return CaseResult(case, Result.PASS, "", (), exchanges)
    is_must = case.level is Level.MUST and any(finding.level is Level.MUST for finding in findings)
    message = "; ".join(f"{finding.invariant}: {finding.text}" for finding in findings)
    return CaseResult(case, Result.FAIL if is_must else Result.WARN, message, tuple(findings), exchanges)
