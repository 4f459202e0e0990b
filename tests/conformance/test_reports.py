"""Reports: what they say, that they can be read by others, and that no secret is in them."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from rich.console import Console

from conformance.case import Level
from conformance.catalogue import all_cases
from conformance.client import Exchange, Sent, Trouble
from conformance.oracle.registry import Finding
from conformance.report.console import show
from conformance.report.files import write_reports
from conformance.report.page import page
from conformance.report.redact import REDACTED, redacted, redacted_headers
from conformance.results import Capability, CaseResult, Report, Result

SECRET = "s3cr3t-token-0815"
SCHEME = f"Bearer {SECRET}"
HOSTILE = '</script><img src=x onerror="alert(1)">&'


def _report() -> Report:
    """One case of each result; the server repeats the secret wherever it can."""
    cases = all_cases()
    sent = Sent(
        "POST", "/v1/chat/completions", {"Authorization": SCHEME, "X-Own": SECRET}, f'{{"a": "{SECRET}"}}'.encode()
    )
    answer = {"content-type": "text/html", "set-cookie": "id=1", "x-echo": f"you said {SCHEME}"}
    exchange = Exchange(sent, 200, answer, f"{HOSTILE} {SCHEME}\x00\x1b".encode(), duration_s=0.25)
    silent = Exchange(sent, trouble=Trouble.UNREACHABLE, reason=f"refused for {SECRET}")
    finding = Finding("body-schema", Level.MUST, "-")
    told = [
        CaseResult(cases[0], Result.PASS, "", (), (exchange,)),
        CaseResult(cases[1], Result.FAIL, f"body-schema: {HOSTILE} {SECRET}\x00", (finding,), (exchange,)),
        CaseResult(cases[2], Result.WARN, "a warning", (finding,), (exchange,)),
        CaseResult(cases[3], Result.ERROR, "ZeroDivisionError: oops"),
        CaseResult(cases[4], Result.UNSUPPORTED, f"tools: refused with 422: {SECRET}"),
        CaseResult(cases[5], Result.UNREACHABLE, f"refused for {SECRET}", (), (silent,)),
    ]
    able = {"tools": Capability("tools", False, f"refused with 422: {SECRET}")}
    return Report(
        base_url=f"http://user:{SECRET}@host:1", model="m", started="2026-01-01T00:00:00+00:00", duration_s=1.5,
        capabilities=able, cases=told, secrets=frozenset({SCHEME, SECRET}),
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out") / "new" / "folder"
    write_reports(_report(), out)
    return out


def test_no_report_has_the_secret(folder: Path) -> None:
    files = sorted(path.name for path in folder.iterdir())
    assert files == ["junit.xml", "report.html", "results.yaml"]
    for name in files:
        text = (folder / name).read_text("utf-8")
        assert SECRET not in text, name
        assert REDACTED in text, name


def test_the_console_has_no_secret_and_tells_each_result_apart() -> None:
    console = Console(record=True, width=200, quiet=False, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    with console.file:
        show(_report(), console)
    text = console.export_text()
    assert SECRET not in text
    assert "There is no verdict" in text
    for result in Result:
        assert result.value in text
    assert all_cases()[1].id in text


def test_results_say_what_programs_want(folder: Path) -> None:
    document = yaml.safe_load((folder / "results.yaml").read_text("utf-8"))
    assert document["exit_code"] == 2
    assert document["counts"] == dict.fromkeys([result.value for result in Result], 1)
    assert [case["result"] for case in document["cases"]] == [
        "pass", "fail", "warn", "error", "unsupported", "unreachable",
    ]  # fmt: skip
    assert document["cases"][1]["invariants"] == ["body-schema"]
    assert document["cases"][1]["id"] == all_cases()[1].id
    assert document["capabilities"]["tools"]["present"] is False


def test_junit_counts_and_keeps_each_case(folder: Path) -> None:
    suite = ElementTree.parse(folder / "junit.xml").getroot()
    told = [(case.get("name"), [child.tag for child in case]) for case in suite]
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "6", "failures": "1", "errors": "2", "skipped": "1",
    }  # fmt: skip
    assert [tags for _, tags in told] == [[], ["failure"], ["system-out"], ["error"], ["skipped"], ["error"]]
    assert [name for name, _ in told] == [case.id for case in all_cases()[:6]]


class _Elements(HTMLParser):
    """Start tags with their attributes, and all text outside of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def elements() -> _Elements:
    return _Elements(page(_report()))


def test_the_page_needs_nothing_else(elements: _Elements) -> None:
    assert {"link", "img", "iframe"} & {tag for tag, _ in elements.tags} == set()
    assert [attrs for _, attrs in elements.tags if "src" in attrs or "href" in attrs] == []
    assert "@import" not in elements.text
    assert re.findall(r"url\(", elements.text) == []


def test_what_a_server_says_is_text(elements: _Elements) -> None:
    assert HOSTILE in elements.text
    assert sum(tag == "script" for tag, _ in elements.tags) == 1


def test_the_page_tells_of_each_case_what_belongs_to_it(elements: _Elements) -> None:
    report = _report()
    found = {attrs["id"]: attrs["data-result"] for tag, attrs in elements.tags if attrs.get("class") == "case"}
    assert found == {one.case.id: one.result.value for one in report.cases}
    for words in ("What the contract says", "What was expected", "What was sent", "What came back", "What was found"):
        assert words in elements.text
    assert f"line {report.cases[0].case.lines[0]}" in elements.text
    assert "HTTP 200 in 250 ms" in elements.text


def test_the_page_can_be_filtered_from_the_keyboard(elements: _Elements) -> None:
    boxes = [attrs["value"] for tag, attrs in elements.tags if tag == "input" and attrs.get("type") == "checkbox"]
    assert boxes == [result.value for result in Result]
    assert any(tag == "input" and attrs.get("type") == "search" and attrs["aria-label"] for tag, attrs in elements.tags)
    assert sum(tag == "summary" for tag, _ in elements.tags) == len(_report().cases) + 1


@pytest.mark.parametrize(
    ("text", "secrets", "safe"),
    [
        ("key abcd1234!", {"abcd1234"}, f"key {REDACTED}!"),
        ("abcd1234", {"Bearer abcd1234"}, REDACTED),
        ("Authorization: Bearer eyJhbGciOi.x.y", set(), f"Authorization: Bearer {REDACTED}"),
        ("one two", {"one"}, "one two"),
        ("told abcd12… (200 characters)", {"abcd1234"}, f"told {REDACTED}… (200 characters)"),
        ('{"error": "ab\\"cd\\\\ef"}', {'ab"cd\\ef'}, f'{{"error": "{REDACTED}"}}'),
        ("half \ud800 abcd1234", {"abcd1234"}, f"half \\ud800 {REDACTED}"),
    ],
)
def test_secrets_are_taken_out_of_texts(text: str, secrets: set[str], safe: str) -> None:
    assert redacted(text, frozenset(secrets)) == safe


@pytest.mark.parametrize("name", ["Authorization", "x-api-key", "API_TOKEN", "Set-Cookie", "X-Secret"])
def test_headers_that_carry_keys_lose_their_values(name: str) -> None:
    assert redacted_headers({name: "value", "Accept": "x"}, frozenset()) == {name: REDACTED, "Accept": "x"}


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    from conformance.files import SuiteError

    file: Any = tmp_path / "file"
    file.write_text("")
    with pytest.raises(SuiteError, match="file"):
        write_reports(_report(), file)
