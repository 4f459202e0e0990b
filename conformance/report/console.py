"""The run on a terminal."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from conformance.oracle.shapes import shortened
from conformance.report.redact import redacted
from conformance.results import CaseResult, Exit, Report, Result

_STYLES: Final = {
    Result.PASS: "green",
    Result.FAIL: "bold red",
    Result.WARN: "yellow",
    Result.ERROR: "bold magenta",
    Result.UNSUPPORTED: "dim",
    Result.UNREACHABLE: "magenta",
}
_VERDICTS: Final = {
    Exit.CONFORMS: "The server keeps every MUST that was asked of it.",
    Exit.FAILED: "The server does not conform: a MUST failed.",
    Exit.COULD_NOT_TEST: "There is no verdict: not every case could be tested.",
}
_SHOWN: Final = (Result.FAIL, Result.ERROR, Result.UNREACHABLE, Result.WARN)
MAX_ROWS: Final = 60
MAX_MESSAGE: Final = 300


def show(report: Report, console: Console) -> None:
    """What did not pass, the capabilities that are missing, and the counts."""
    groups = _groups(report)
    if groups:
        table = Table("result", "case", "what was found", title=_title(report))
        for group in groups[:MAX_ROWS]:
            first, more = group[0], f" and {len(group) - 1} more" if len(group) > 1 else ""
            message = escape(shortened(redacted(first.message, report.secrets), MAX_MESSAGE))
            table.add_row(f"[{_STYLES[first.result]}]{first.result}[/]", escape(first.case.id) + more, message)
        console.print(table)
        if len(groups) > MAX_ROWS:
            console.print(f"and {len(groups) - MAX_ROWS} more rows, in the reports")
    for able in report.capabilities.values():
        if not able.present:
            evidence = escape(shortened(redacted(able.evidence, report.secrets), MAX_MESSAGE))
            console.print(f"[dim]without {able.name}: {evidence}[/]")
    console.print(_summary(report))
    console.print(_VERDICTS[report.exit_code])


def _title(report: Report) -> str:
    return escape(f"{report.model} at {redacted(report.base_url, report.secrets)}, dialect {report.dialect}")


def _groups(report: Report) -> list[list[CaseResult]]:
    """What did not pass, gravest first; cases with one and the same message share a row."""
    groups: dict[tuple[Result, str], list[CaseResult]] = {}
    for result in _SHOWN:
        for one in report.cases:
            if one.result is result:
                groups.setdefault((result, one.message), []).append(one)
    return list(groups.values())


def _summary(report: Report) -> Table:
    table = Table(title=f"{len(report.cases)} cases in {report.duration_s:.1f} s")
    for result in Result:
        table.add_column(result.value, justify="right", style=_STYLES[result])
    table.add_row(*(str(report.counts[result]) for result in Result))
    return table
