"""schemathesis against the server over its scripted engine: positive and negative data, every check, and no finding.

Two passes run side by side: every operation, and the chat with nearly every body a wish for a stream.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from mindserve.api._generated.operations import OPERATIONS
from tests.conformance.fuzzing import bodies
from tests.serving import running, scripted_model

ROOT: Final = Path(__file__).parents[2]
FUZZING: Final = Path(__file__).parent / "fuzzing"
PASSES: Final = ("plain", "streams")
BASELINE: Final = FUZZING / "baseline.json"
MIN_EXAMPLES: Final = 2000
REPLIES: Final = [{"default": True, "pieces": ["Hello", "!", " 世界 ", "🚀"]}]

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reports(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, dict[str, Any]]]:
    """What schemathesis reports of each pass."""
    folder = tmp_path_factory.mktemp("schemathesis")
    async with running(scripted_model(folder, REPLIES)) as live:
        found = await asyncio.gather(*(_run(name, live.url, folder) for name in PASSES))
        yield dict(zip(PASSES, found, strict=True))


async def _run(name: str, url: str, folder: Path) -> dict[str, Any]:
    report = folder / f"{name}.json"
    only = () if name == "plain" else ("--include-operation-id", "createChatCompletion")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(FUZZING / f"{name}.toml"), "run"),
        *(str(bodies.CONTRACT), "--url", url, "--no-color", *only),
        *("--baseline", shutil.copy(BASELINE, folder / f"{name}-baseline.json")),
        *("--report", "json", "--report-json-path", str(report)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert report.exists(), said.decode()
    return {**json.loads(report.read_text("utf-8")), "said": said.decode()}


async def test_nothing_is_found(reports: dict[str, dict[str, Any]]) -> None:
    """Beyond the baseline, and nothing that stands in the baseline has gone."""
    for report in reports.values():
        assert report["failures"] == [], report["said"]
        assert report["errors"] == [], report["said"]
        assert report["exit_code"] == 0, report["said"]
    assert (report["baseline"]["new"], report["baseline"]["unobserved"]) == (0, 0)


async def test_the_baseline_is_empty() -> None:
    assert json.loads(BASELINE.read_text("utf-8"))["entries"] == []


async def test_enough_was_tried(reports: dict[str, dict[str, Any]]) -> None:
    """On every operation; a good part was meant to be taken, and was."""
    assert {report["schemathesis_version"] for report in reports.values()} == {version("schemathesis")}
    assert reports["plain"]["operations"]["tested"] == len(OPERATIONS)
    assert sum(report["test_cases"]["generated"] for report in reports.values()) >= MIN_EXAMPLES
    for report in reports.values():
        assert report["test_cases"]["without_checks"] == 0
        rates = report["valid_rates"]["POST /v1/chat/completions"]["fuzzing"]
        assert rates["accepted"] > 250, rates
        assert rates["rejected"] == 0, rates
