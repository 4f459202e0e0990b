"""``report.html``: the run for a person, one page that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import jinja2

from conformance.case import Case
from conformance.client import Exchange
from conformance.contract import Contract, load_contract
from conformance.oracle.registry import INVARIANTS
from conformance.report.redact import redacted, redacted_headers
from conformance.results import CaseResult, Report, Result

MAX_SHOWN: Final = 2000
"""Bytes of a body that are shown from its beginning."""
_VERDICTS: Final = {
    0: "conforms: every MUST that was asked passed",
    1: "does not conform: a MUST failed",
    2: "no verdict: not every case could be tested",
}


def write_page(report: Report, path: Path) -> None:
    path.write_text(page(report), "utf-8")


def page(report: Report) -> str:
    """The whole page as HTML. All that came from a server is escaped."""
    contract = load_contract(report.dialect)
    return _template().render(
        report=report,
        server=redacted(report.base_url, report.secrets),
        verdict=_VERDICTS[report.exit_code],
        counts={result.value: report.counts[result] for result in Result},
        capabilities=[
            (one.name, one.present, redacted(one.evidence, report.secrets)) for one in report.capabilities.values()
        ],
        cases=[_row(contract, one, report.secrets) for one in report.cases],
    )


@cache
def _template() -> jinja2.Template:
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("page.html.j2")


def _row(contract: Contract, one: CaseResult, secrets: frozenset[str]) -> dict[str, Any]:
    case = one.case
    return {
        "id": case.id,
        "result": one.result.value,
        "level": case.level.value,
        "says": case.says,
        "message": redacted(one.message, secrets),
        "lines": list(_lines(contract, case)),
        "readings": [(number, contract.readings.get(number, "")) for number in case.readings],
        "expected": case.expect.words(),
        "broken": [(name, INVARIANTS[name].says) for name in one.invariants],
        "exchanges": [_exchange(exchange, secrets) for exchange in one.exchanges],
    }


def _lines(contract: Contract, case: Case) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """What the contract says of each line of the document that the case cites."""
    for line in case.lines:
        yield line, contract.says.get(line, [])


def _exchange(exchange: Exchange, secrets: frozenset[str]) -> dict[str, Any]:
    answered = f"HTTP {exchange.status}" if exchange.status is not None else "no answer"
    return {
        "request": f"{exchange.sent.method} {exchange.sent.path}",
        "sent_headers": _headers(exchange.sent.headers, secrets),
        "sent": redacted(_sent(exchange.sent.content), secrets),
        "answered": f"{answered} in {exchange.duration_s * 1000:.0f} ms",
        "headers": _headers(exchange.headers, secrets),
        "body": redacted(_excerpt(exchange.body), secrets),
        "trouble": redacted(exchange.reason, secrets) if exchange.trouble is not None else "",
    }


def _headers(headers: Any, secrets: frozenset[str]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in redacted_headers(headers, secrets).items())


def _sent(content: bytes | None) -> str:
    """A small request is shown with one field a line."""
    if content is None:
        return ""
    if len(content) <= MAX_SHOWN:
        try:
            return json.dumps(json.loads(content), ensure_ascii=False, indent=1)
        except (ValueError, RecursionError):
            pass
    return _excerpt(content)


def _excerpt(body: bytes) -> str:
    shown = body[:MAX_SHOWN].decode("utf-8", "replace")
    return shown if len(body) <= MAX_SHOWN else f"{shown}… ({len(body)} bytes)"
