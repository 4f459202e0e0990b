"""``results.yaml`` and ``junit.xml``, for programs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import yaml

from conformance.files import SuiteError
from conformance.report.page import write_page
from conformance.report.redact import redacted
from conformance.results import CaseResult, Report, Result

_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def results_document(report: Report) -> dict[str, Any]:
    """The run as data."""
    return {
        "server": redacted(report.base_url, report.secrets),
        "model": report.model,
        "dialect": report.dialect,
        "started": report.started,
        "duration_s": round(report.duration_s, 3),
        "exit_code": int(report.exit_code),
        "counts": {result.value: report.counts[result] for result in Result},
        "capabilities": {
            one.name: {"present": one.present, "evidence": redacted(one.evidence, report.secrets)}
            for one in report.capabilities.values()
        },
        "cases": [_case(one, report.secrets) for one in report.cases],
    }


def _case(one: CaseResult, secrets: frozenset[str]) -> dict[str, Any]:
    return {
        "id": one.case.id,
        "result": one.result.value,
        "level": one.case.level.value,
        "lines": list(one.case.lines),
        "readings": list(one.case.readings),
        "invariants": one.invariants,
        "message": redacted(one.message, secrets),
    }


def write_yaml(report: Report, path: Path) -> None:
    text = yaml.safe_dump(results_document(report), sort_keys=False, allow_unicode=True, width=120)
    path.write_text(text, "utf-8")


def write_junit(report: Report, path: Path) -> None:
    """JUnit knows failure, error and skipped; a warning is a passed case with its text in ``system-out``."""
    counts = report.counts
    suite = ElementTree.Element(
        "testsuite",
        name="mindserve conformance",
        tests=str(len(report.cases)),
        failures=str(counts[Result.FAIL]),
        errors=str(counts[Result.ERROR] + counts[Result.UNREACHABLE]),
        skipped=str(counts[Result.UNSUPPORTED]),
        time=f"{report.duration_s:.3f}",
        timestamp=report.started,
    )
    for one in report.cases:
        _junit_case(suite, one, report.secrets)
    ElementTree.indent(suite)
    ElementTree.ElementTree(suite).write(path, "utf-8", xml_declaration=True)


def _junit_case(suite: ElementTree.Element, one: CaseResult, secrets: frozenset[str]) -> None:
    time_s = sum(exchange.duration_s for exchange in one.exchanges)
    entry = ElementTree.SubElement(suite, "testcase", classname=one.case.theme, name=one.case.id, time=f"{time_s:.3f}")
    tag = {
        Result.FAIL: "failure", Result.ERROR: "error", Result.UNREACHABLE: "error", Result.UNSUPPORTED: "skipped",
        Result.WARN: "system-out",
    }.get(one.result)  # fmt: skip
    if tag is None:
        return
    text = _NOT_XML.sub("\ufffd", redacted(one.message, secrets))
    element = ElementTree.SubElement(entry, tag)
    if tag != "system-out":
        element.set("message", text)
        element.set("type", one.result.value)
    element.text = text


def write_reports(report: Report, folder: Path) -> None:
    """All files of a run. Raises ``SuiteError`` where they cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_yaml(report, folder / "results.yaml")
        write_junit(report, folder / "junit.xml")
        write_page(report, folder / "report.html")
    except OSError as error:
        raise SuiteError(f"{error.filename or folder}: {error.strerror}") from error
