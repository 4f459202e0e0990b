"""Runs schemathesis against a server, in a process of its own, and reads its report."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.conformance.fuzzing.bodies import DIALECT_VARIABLE, contract_of

FOLDER: Final = Path(__file__).parent
BASELINE: Final = FOLDER / "baseline.json"
CHAT_ONLY: Final = ("--include-operation-id", "createChatCompletion")

Report = dict[str, Any]


async def run(
    name: str, url: str, report: Path, options: Sequence[str] = (), baseline: Path = BASELINE, dialect: str = "vllm"
) -> Report:
    """The report of one pass, as it is configured in ``<name>.toml``, with what was printed under ``said``. Every
    request asks for ``dialect``."""
    contract = report.with_suffix(".contract.json")
    contract.write_text(json.dumps(contract_of(dialect)), "utf-8")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(FOLDER / f"{name}.toml")),
        *(
            "run",
            str(contract),
            "--url",
            url,
            "--header",
            f"X-Mindserve-Dialect: {dialect}",
            "--no-color",
            "--baseline",
            str(baseline),
        ),
        *("--report", "json", "--report-json-path", str(report), *options),
        cwd=FOLDER.parents[2],
        env={**os.environ, DIALECT_VARIABLE: dialect},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return {**_read(report, said.decode()), "said": said.decode()}


def _read(report: Path, said: str) -> Report:
    assert report.exists(), said
    value: Report = json.loads(report.read_text("utf-8"))
    return value
