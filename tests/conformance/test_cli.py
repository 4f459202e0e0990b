"""The command line: exit statuses and what is printed."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from conformance import __main__ as entry
from conformance import cli
from conformance.catalogue import all_cases
from conformance.cli import main
from conformance.contract import load_contract
from conformance.coverage import Coverage, coverage
from conformance.dialects import DIALECTS
from conformance.script import ANSWERS
from tests.serving import MODEL, running, scripted_model

ROOT = Path(__file__).parents[2]
RUN = ["run", "--model", "m", "--base-url"]


def test_nothing_is_without_a_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["coverage"]) == 0
    said = capsys.readouterr().out
    assert "vllm: 126 lines" in said
    assert "openai: 0 lines" in said


def test_gaps_of_coverage_are_told_and_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fewer = tuple(case for case in all_cases() if 593 not in case.lines and not case.id.startswith("rules.seed-range"))
    monkeypatch.setattr(cli, "all_cases", lambda dialect: fewer)
    assert main(["coverage", "--all"]) == 1
    said = capsys.readouterr().out
    assert "line 593 of the document has no case" in said
    assert "the rule seed-range has no two cases" in said


def _without(word: str) -> Coverage:
    return coverage(load_contract(), [case for case in all_cases() if word not in case.id])


def test_fields_and_invariants_without_a_case_are_gaps() -> None:
    assert "the field HealthStatus.reason has neither an invariant nor a case" in _without("plane").gaps
    assert "the invariant transcript is asked by no case" in _without("golden").gaps


def test_readings_of_the_other_dialect_without_a_case_are_gaps() -> None:
    cases = [case for case in all_cases("openai") if "D11" not in case.readings]
    assert coverage(load_contract("openai"), cases).gaps == ["the reading D11 has neither a case nor an invariant"]


def test_list_shows_written_and_derived_cases(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(all_cases())
    assert main(["list", "--dialect", "openai"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(all_cases("openai"))
    derived = next(line for line in lines if line.startswith("request.top_k.at-maximum "))
    assert "MUST" in derived
    assert " 49 " in derived
    assert any(line.startswith("rules.seed-range.breaks ") for line in lines)


def test_the_script_is_yaml_with_a_reply_for_each_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["script"]) == 0
    script = yaml.safe_load(capsys.readouterr().out)
    assert script["media"] is True
    replies = script["replies"]
    scripted = {case.id for name in DIALECTS for case in all_cases(name) if case.reply is not None}
    assert len(replies) == len(scripted) + len(ANSWERS) + 3
    assert replies[-1]["default"] is True


@pytest.mark.parametrize(
    "arguments",
    [
        [*RUN, "ftp://host"],
        [*RUN, "http://host/v1"],
        [*RUN, "http://user:password@host"],
        [*RUN, "http://[::1"],
        [*RUN, "http://127.0.0.1:1", "--profile", "/nowhere.yaml"],
        [*RUN, "http://127.0.0.1:1", "--only", "no.such.case"],
        [*RUN, "http://127.0.0.1:1", "--header", "no colon"],
        [*RUN, "http://127.0.0.1:1", "--header", "X: ü"],
        [*RUN, "http://127.0.0.1:1", "--header", "X Y: z"],
    ],
)
def test_wrong_arguments_are_told_in_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize("option", [["--rate", "0"], ["--concurrency", "0"], ["--rate", "x"], ["--no-such-option"]])
def test_wrong_numbers_are_told(option: list[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main([*RUN, "http://127.0.0.1:1", *option])
    assert raised.value.code == 2


def test_no_server_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "http://127.0.0.1:1", "--only", "plane.*"]) == 2
    assert "unreachable" in capsys.readouterr().out


async def test_a_run_writes_its_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a thread, as the command has an event loop of its own."""
    import asyncio

    out = tmp_path / "out"
    async with running(scripted_model(tmp_path, [{"default": True, "pieces": ["Hello"]}])) as live:
        arguments = ["run", "--base-url", live.url + "/", "--model", MODEL, "--only", "whole.plain", "--out", str(out)]
        assert await asyncio.to_thread(main, [*arguments, "--header", "Authorization: Bearer abcdef123"]) == 0
    assert "keeps every MUST" in capsys.readouterr().out
    cases = yaml.safe_load((out / "results.yaml").read_text("utf-8"))["cases"]
    assert [(case["id"], case["result"]) for case in cases] == [("whole.plain", "pass")]


def test_the_console_script_is_the_same_command(capsys: pytest.CaptureFixture[str]) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    module, _, name = scripts["mindserve-conformance"].partition(":")
    assert getattr(import_module(module), name) is entry.main


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "conformance.cli", None)
    assert entry.main() == 2
    assert "mindserve[conformance]" in capsys.readouterr().err
