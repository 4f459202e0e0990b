"""schemathesis against the server over its scripted engine: positive and negative data, every check, and no finding.

Two passes run side by side: every operation, and the chat with nearly every body a wish for a stream. A short one asks
for the other dialect.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path
from typing import Final

import httpx2
import pytest
import pytest_asyncio

from mindserve.api._generated.operations import OPERATIONS
from tests.conformance.fuzzing.bodies import fitted, formed, is_taken, streamed, with_served_model
from tests.conformance.fuzzing.runs import BASELINE, CHAT_ONLY, Report, run
from tests.conformance.mutants.faults import accepting, on_answer
from tests.conformance.mutants.proxy import Answer, Proxy, Question
from tests.serving import chat_body, running, scripted_model

MIN_EXAMPLES: Final = 2000
MIN_TAKEN: Final = 250
"""Of each pass: bodies that were made up to be taken."""
MIN_BOUND: Final = 1
"""Of requests with tools, with strict ones, and with a form of answer."""
REPLIES: Final = [{"default": True, "pieces": ["Hello", "!", " 世界 ", "🚀"]}]

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def answered() -> Counter[str]:
    """What was asked for in requests that were answered."""
    return Counter()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reports(tmp_path_factory: pytest.TempPathFactory, answered: Counter[str]) -> AsyncIterator[dict[str, Report]]:
    """What schemathesis reports of each pass."""
    folder = tmp_path_factory.mktemp("schemathesis")
    proxies: list[Proxy] = []

    def around(app: object) -> Proxy:
        proxies.append(Proxy(app))
        return proxies[0]

    def count(question: Question, answer: Answer) -> Answer:
        fields = question.fields
        if fields is not None and answer.status == httpx2.codes.OK:
            answered["calls"] += bool(fields.get("tools")) and fields.get("tool_choice") != "none"
            answered["strict"] += any(tool["function"].get("strict") for tool in fields.get("tools") or ())
            answered["form"] += (fields.get("response_format") or {}).get("type", "text") != "text"
        return answer

    async with running(scripted_model(folder, REPLIES), around=around) as live:
        with proxies[0].having(on_answer(count)):
            plain, streams = await asyncio.gather(
                run("plain", live.url, folder / "plain.json"),
                run("streams", live.url, folder / "streams.json", CHAT_ONLY),
            )
    yield {"plain": plain, "streams": streams}


async def test_nothing_is_found(reports: dict[str, Report]) -> None:
    """Neither what is new, nor what the baseline knows; and the baseline knows nothing that is gone."""
    for report in reports.values():
        assert (report["failures"], report["errors"], report["exit_code"]) == ([], [], 0), report["said"]
        assert (report["baseline"]["known"], report["baseline"]["unobserved"]) == (0, 0), report["baseline"]


async def test_the_baseline_is_empty() -> None:
    assert json.loads(BASELINE.read_text("utf-8"))["entries"] == []


async def test_enough_was_tried(reports: dict[str, Report]) -> None:
    """On every operation; a good part was meant to be taken, and was."""
    assert {report["schemathesis_version"] for report in reports.values()} == {version("schemathesis")}
    assert reports["plain"]["operations"]["tested"] == len(OPERATIONS)
    assert sum(report["test_cases"]["generated"] for report in reports.values()) >= MIN_EXAMPLES
    for report in reports.values():
        assert report["test_cases"]["without_checks"] == 0
        rates = report["valid_rates"]["POST /v1/chat/completions"]["fuzzing"]
        assert rates["accepted"] >= MIN_TAKEN, rates
        assert rates["rejected"] == 0, rates


async def test_tools_and_bound_answers_are_tried(reports: dict[str, Report], answered: Counter[str]) -> None:
    assert reports
    assert min(answered["calls"], answered["strict"], answered["form"]) >= MIN_BOUND, answered


async def test_nothing_is_found_in_the_other_dialect(tmp_path: Path) -> None:
    async with running(scripted_model(tmp_path, REPLIES)) as live:
        options = (*CHAT_ONLY, "--max-examples", "60")
        report = await run("streams", live.url, tmp_path / "report.json", options, dialect="openai")
    assert (report["failures"], report["errors"], report["exit_code"]) == ([], [], 0), report["said"]


async def test_a_wrong_server_is_found(tmp_path: Path) -> None:
    """Beside it, a baseline of something that is never found: neither passes unseen."""
    entry = {"operation": "GET /health", "check": "not_a_server_error", "failure": "ServerError", "signature": "gone"}
    baseline = tmp_path / "baseline.json"
    baseline.write_text(json.dumps({"format_version": 1, "entries": [entry]}), "utf-8")
    proxies: list[Proxy] = []

    def around(app: object) -> Proxy:
        proxies.append(Proxy(app))
        return proxies[0]

    async with running(scripted_model(tmp_path, REPLIES), around=around) as live:
        with proxies[0].having(accepting(lambda fields: fields.get("n") == 0, n=1)):
            only = (*CHAT_ONLY, "--phases", "coverage")
            report = await run("plain", live.url, tmp_path / "report.json", only, baseline)
    assert [failure["code"] for failure in report["failures"]] == ["ST201"], report["said"]
    assert report["exit_code"] == 1
    assert report["baseline"]["new"] == 1


# ------------------------------------------------------------------------------------------ bodies that are made to fit


async def test_a_body_that_fits_stays_as_it_is() -> None:
    body = chat_body(n=2, best_of=3, stop=["x"], tool_choice="auto")
    assert fitted(body) == body
    assert is_taken(body)


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "another"},
        {"n": 3, "best_of": 2},
        {"stream": True, "best_of": 2},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"response_format": {"type": "json_object"}},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "a.png"}]}]},
        {"tools": [], "tool_choice": None, "n": None},
    ],
)
async def test_a_body_is_made_to_fit(fields: dict[str, object]) -> None:
    body = chat_body(**fields)
    assert is_taken(fitted(body))
    assert fitted(streamed(body)).get("stream") is True


async def test_what_is_wrong_with_a_body_stays() -> None:
    for body in ({"model": 5}, {"model": ""}, {"messages": []}, [], None):
        assert with_served_model(body) == body
    assert with_served_model({"model": "another", "n": 0}) == {"model": "m", "n": 0}
    assert streamed({"stream": "yes"}) == {"stream": "yes"}
    for body in ({"response_format": 5, "a": 1, "b": 2}, {"use_beam_search": True, "a": 1, "b": 2}, {"a": 1}, None):
        assert formed(body) == body
    assert formed({"a": 1, "b": 2, "c": 3})["response_format"] == {"type": "json_object"}
