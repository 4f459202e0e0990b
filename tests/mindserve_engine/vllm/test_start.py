"""A start that hangs or dies ends, with words that say so; vLLM and its processes are played."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mindserve_engine.interface import EngineError, EngineNotStarted
from mindserve_engine.options import EngineOptions, VllmOptions
from mindserve_engine.types import EngineState
from mindserve_engine.vllm import engine
from mindserve_engine.vllm.engine import VllmEngine

LAUNCHED = SimpleNamespace(info=None, llm=SimpleNamespace(shutdown=lambda timeout: None))


class Launch:
    """vLLM's own start: it blocks until its processes are killed, or comes to an end at once."""

    def __init__(self, *, hangs: bool) -> None:
        self.hangs = hangs
        self.processes_are_gone = threading.Event()

    def __call__(self, options: EngineOptions) -> Any:
        if self.hangs:
            self.processes_are_gone.wait(60)
            raise EngineNotStarted("Engine core initialization failed")
        return LAUNCHED

    def processes(self) -> Any:
        return SimpleNamespace(end=self.processes_are_gone.set)


class Served:
    """vLLM's engine after its launch, which never answers."""

    is_dead = False
    is_closed = False
    failure: Exception | None = None

    def __init__(self, *arguments: Any) -> None:
        self.ranks = SimpleNamespace(silent=lambda: ())

    async def prepare(self, adapters: Any) -> None:
        if self.failure is not None:
            raise self.failure
        await asyncio.Event().wait()

    async def close(self, reason: str) -> None:
        type(self).is_closed = True


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> type[Served]:
    class Fresh(Served):
        pass

    monkeypatch.setitem(sys.modules, "mindserve_engine.vllm.served", SimpleNamespace(Served=Fresh))  # type: ignore[arg-type]
    monkeypatch.setattr(engine, "launch", Launch(hangs=False))
    return Fresh


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launch]:
    launch = Launch(hangs=True)
    monkeypatch.setattr(engine, "launch", launch)
    monkeypatch.setattr(engine, "Processes", launch.processes)
    yield launch
    launch.processes_are_gone.set()


def one(start_timeout_s: float) -> VllmEngine:
    return VllmEngine(EngineOptions(model_path=Path("m"), vllm=VllmOptions(start_timeout_s=start_timeout_s)))


async def test_a_launch_that_hangs_is_given_up_and_its_processes_are_ended(hanging: Launch) -> None:
    hung = one(0.05)
    with pytest.raises(EngineNotStarted, match=r"did not start within 0\.05 s \(startTimeout\)"):
        await hung.start()
    assert hung.health().state is EngineState.FAILED
    assert not hanging.processes_are_gone.is_set()
    await asyncio.wait_for(hung.close(), 30)
    assert hanging.processes_are_gone.is_set()


async def test_an_engine_that_is_launched_and_does_not_answer_is_given_up(served: type[Served]) -> None:
    mute = one(0.05)
    with pytest.raises(EngineNotStarted, match="startTimeout"):
        await mute.start()
    await mute.close()
    assert served.is_closed


async def test_an_engine_that_dies_before_it_is_ready_is_noticed(served: type[Served]) -> None:
    served.is_dead = True
    with pytest.raises(EngineNotStarted, match="died while it started"):
        await asyncio.wait_for(one(3600).start(), 30)


async def test_what_the_preparation_finds_is_told_as_it_is(served: type[Served]) -> None:
    served.failure = EngineError("adapter one: vLLM did not load it")
    with pytest.raises(EngineError, match="adapter one") as told:
        await one(3600).start()
    assert not isinstance(told.value, EngineNotStarted)
