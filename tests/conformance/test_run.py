"""Running cases: selection, results, exit statuses, discovery, pacing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import client
from conformance import run as suite
from conformance.capabilities import capability_names
from conformance.case import Level
from conformance.catalogue import all_cases, select
from conformance.client import Exchange, Limits
from conformance.files import SuiteError
from conformance.oracle.registry import Finding
from conformance.profile import Profile
from conformance.results import CaseResult, Exit, Report, Result, judged
from conformance.run import run_suite
from conformance.script import ANSWERS
from conformance.settings import Settings
from mindserve.config.settings import ServeSettings
from tests.conformance.exchanges import SENT
from tests.conformance.hostile import hostile_server, json_head
from tests.serving import MODEL, running, scripted_model

HELLO = [*ANSWERS, {"default": True, "pieces": ["Hello", "!"], "logprobs": -0.5}]


async def _report(tmp_path: Path, settings: ServeSettings | None = None, **wanted: Any) -> Report:
    async with running(scripted_model(tmp_path, HELLO, adapters={"tuned": tmp_path}), settings) as live:
        return await run_suite(Settings(base_url=live.url, model=MODEL, **wanted))


async def test_a_good_server_conforms(tmp_path: Path) -> None:
    told: list[CaseResult] = []
    async with running(scripted_model(tmp_path, HELLO)) as live:
        wanted = frozenset({"whole.plain", "stream.*", "request.n.*"})
        report = await run_suite(Settings(base_url=live.url, model=MODEL, only=wanted), told.append)
    assert report.exit_code is Exit.CONFORMS
    assert {one.result for one in report.cases} == {Result.PASS, Result.UNSUPPORTED}
    assert sorted(one.case.id for one in told) == sorted(one.case.id for one in report.cases)
    assert [one.case.id for one in report.cases] == [case.id for case in select(wanted)]


async def test_capabilities_are_found_out_with_evidence(tmp_path: Path) -> None:
    settings = ServeSettings(model_name=MODEL, lora_names=("tuned",), full_text_enabled=True)
    report = await _report(tmp_path, settings, only=frozenset({"plane.live"}))
    found = {name: one.present for name, one in report.capabilities.items()}
    assert set(found) == capability_names()
    present = {"several", "beam", "logprobs", "lora", "deterministic", "reproducible", "full-text", "tool-history"}
    assert {name for name, one in found.items() if one} == present | {"tools", "constrained"}
    assert "image_url" in report.capabilities["image"].evidence
    assert report.capabilities["lora"].evidence == "the adapter tuned"


async def test_an_adapter_that_nobody_names_is_told(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="adapter"):
        await _report(tmp_path, profile=Profile(capabilities={"lora": True}), only=frozenset({"plane.live"}))


async def test_a_profile_decides_without_asking(tmp_path: Path) -> None:
    profile = Profile(capabilities={"several": False, "reasoning": True})
    report = await _report(tmp_path, profile=profile, only=frozenset({"whole.several", "whole.reasoning"}))
    results = {one.case.id: one for one in report.cases}
    assert results["whole.several"].result is Result.UNSUPPORTED
    assert "profile" in results["whole.several"].message
    assert results["whole.reasoning"].result is Result.FAIL


async def test_a_model_that_is_not_served_is_a_wrong_argument(tmp_path: Path) -> None:
    async with running(scripted_model(tmp_path, HELLO)) as live:
        with pytest.raises(SuiteError, match="it lists 'm'"):
            await run_suite(Settings(base_url=live.url, model="other"))


async def test_a_fault_of_the_suite_is_no_fault_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(*_: Any) -> list[Finding]:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(suite, "judge", judge)
    report = await _report(tmp_path, only=frozenset({"whole.plain"}))
    assert (report.cases[0].result, report.cases[0].message) == (Result.ERROR, "ZeroDivisionError: oops")
    assert report.exit_code is Exit.COULD_NOT_TEST


def test_names_that_fit_no_case_are_told() -> None:
    with pytest.raises(SuiteError, match="no case is called nope"):
        select(frozenset({"nope", "whole.*"}))


def test_there_are_many_cases_with_ids_of_their_own() -> None:
    ids = [case.id for case in all_cases()]
    assert len(set(ids)) == len(ids) > 800


def _report_of(*results: Result) -> Report:
    cases = [CaseResult(all_cases()[0], result) for result in results]
    return Report(base_url="http://x", model="m", started="", duration_s=0.0, capabilities={}, cases=cases)


@pytest.mark.parametrize(
    ("results", "status"),
    [
        ((Result.PASS, Result.UNSUPPORTED, Result.WARN), Exit.CONFORMS),
        ((Result.PASS, Result.FAIL), Exit.FAILED),
        ((Result.PASS, Result.ERROR), Exit.COULD_NOT_TEST),
        ((Result.FAIL, Result.UNREACHABLE), Exit.COULD_NOT_TEST),
        ((), Exit.COULD_NOT_TEST),
    ],
)
def test_exit_statuses(results: tuple[Result, ...], status: Exit) -> None:
    assert _report_of(*results).exit_code is status


@pytest.mark.parametrize(
    ("level", "found", "result"),
    [
        (Level.MUST, [], Result.PASS),
        (Level.MUST, [Level.SHOULD], Result.WARN),
        (Level.MUST, [Level.SHOULD, Level.MUST], Result.FAIL),
        (Level.SHOULD, [Level.MUST], Result.WARN),
    ],
)
def test_only_a_must_of_a_must_fails(level: Level, found: list[Level], result: Result) -> None:
    case = next(case for case in all_cases() if case.level is level)
    findings = [Finding(f"i{number}", one, "text") for number, one in enumerate(found)]
    told = judged(case, findings, (Exchange(SENT),))
    assert told.result is result
    assert told.invariants == [finding.invariant for finding in findings]


async def test_requests_start_no_faster_than_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that stands still, each request waits one interval longer than the one before."""
    waits: list[float] = []

    async def sleep(delay_s: float) -> None:
        waits.append(delay_s)

    monkeypatch.setattr(client, "time", SimpleNamespace(monotonic=lambda: 100.0))
    monkeypatch.setattr(client.asyncio, "sleep", sleep)
    limits = Limits(request_timeout_s=9, max_body_bytes=9, max_events=9, concurrency=1, rate=4)
    async with client.open_client("http://127.0.0.1:1", limits, {}, verify=True) as paced:
        for _ in range(3):
            await paced.send(SENT)
    assert waits == [0.0, 0.25, 0.5]


async def test_no_more_requests_run_than_the_concurrency_allows() -> None:
    running_now = most = 0

    async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal running_now, most
        running_now += 1
        most = max(most, running_now)
        for _ in range(20):
            await asyncio.sleep(0)
        running_now -= 1
        writer.write(json_head(2) + b"{}")

    off = Profile(capabilities=dict.fromkeys(capability_names(), False))
    async with hostile_server(answer) as url:
        await run_suite(Settings(base_url=url, model="m", only=frozenset({"request.n.*"}), profile=off, concurrency=3))
    assert 1 < most <= 3
