"""One started engine of each kind for the whole suite.

``MINDSERVE_CONTRACT=vllm`` runs the suite for that engine alone, and then nothing may be skipped for want of it.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from mindserve_engine.interface import EngineError
from tests.engine.contract.subjects import NAMES, Subject, build, vocabulary

_ONLY = os.environ.get("MINDSERVE_CONTRACT")
_PACKAGES = {"vllm": "vllm", "native": "torch"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "subject" in metafunc.fixturenames:
        names = [_ONLY] if _ONLY else [*NAMES]
        metafunc.parametrize("subject", names, indirect=True, scope="session")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A run that was asked for one engine and tried nothing has not passed."""
    if _ONLY and exitstatus == pytest.ExitCode.OK and not _passed(session.config):
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED


def _passed(config: pytest.Config) -> list[Any]:
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    return [] if reporter is None else [*reporter.stats.get("passed", ())]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Subject]:
    name = request.param
    package = _PACKAGES.get(name)
    if package is not None and importlib.util.find_spec(package) is None:
        reason = f"{package} is not installed here"
        pytest.fail(reason) if _ONLY else pytest.skip(reason)
    made = build(name, tmp_path_factory.mktemp(name))
    try:
        await made.engine.start()
        made.engine.learn(vocabulary())
    except EngineError as error:
        pytest.fail(f"{name} does not start: {error}")
    yield made
    await made.engine.close()
