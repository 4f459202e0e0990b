"""vLLM's engine over several processes and machines, and what becomes of it when they are killed.

Each test starts engines of its own and takes a minute or so; ``make test-vllm`` asks for them."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import tiny_models
from tests.engine.contract.subjects import SIZES, children

ASKED_FOR = "MINDSERVE_SCALE"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    if os.environ.get(ASKED_FOR):
        return
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.skip(reason=f"takes minutes: {ASKED_FOR}=1 runs it where vllm is installed"))


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random, of four heads."""
    assert importlib.util.find_spec("vllm") is not None, "vllm is not installed here"
    return tiny_models.build("llama", tmp_path_factory.mktemp("scale") / "model", **SIZES)


@pytest.fixture(autouse=True)
def on_this_machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All traffic on loopback; several workers share two cores. Nothing is left running."""
    for name, value in {
        "VLLM_HOST_IP": "127.0.0.1",
        "GLOO_SOCKET_IFNAME": "lo",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    yield
    left = [one for one in children() if "resource_tracker" not in " ".join(one.cmdline())]
    assert left == []
