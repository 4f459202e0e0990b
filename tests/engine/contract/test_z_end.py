"""The end of an engine; last, since the others' engine meets it here."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator

import pytest

from mindserve_engine.interface import EngineError, EngineUnavailable, GenerationFailed
from mindserve_engine.registry import create_engine
from mindserve_engine.types import EngineState, SequenceEvent
from tests.engine.contract.subjects import Subject, children, options, until

pytestmark = pytest.mark.asyncio(loop_scope="session")
BOUND_S = 15.0
"""From the death of a process to the error of its last request."""


async def test_a_broken_adapter_ends_the_start(subject: Subject) -> None:
    if not subject.computes:
        pytest.skip("a script reads no adapters")
    nowhere = subject.model / "nowhere"
    engine = create_engine(subject.name, options(subject.name, subject.model, nowhere))
    with pytest.raises(EngineError, match="tuned"):
        await engine.start()
    assert engine.health().state is EngineState.FAILED
    await engine.close()


async def test_a_model_that_is_not_there(subject: Subject) -> None:
    engine = create_engine(subject.name, options(subject.name, subject.model / "nowhere", subject.adapter))
    with pytest.raises(EngineError, match="nowhere"):
        await engine.start()
    assert engine.health().state is EngineState.FAILED
    with pytest.raises(EngineUnavailable):
        await engine.admit(subject.ask())
    await engine.close()


async def test_a_killed_process_fails_its_requests_and_health(subject: Subject) -> None:
    if not subject.computes:
        pytest.skip("a script has no process")
    engine = subject.engine
    running = [await engine.admit(subject.ask([97 + n], max_tokens=300, ignore_eos=True)) for n in range(3)]
    streams = [aiter(generation) for generation in running]
    for stream in streams:
        await anext(stream)
    began = time.monotonic()
    for process in children():
        if "resource_tracker" not in " ".join(process.cmdline()):
            os.kill(process.pid, signal.SIGKILL)
    for stream in streams:
        with pytest.raises(GenerationFailed):
            await asyncio.wait_for(_drain(stream), BOUND_S)
    assert time.monotonic() - began < BOUND_S
    await until(lambda: engine.health().state is not EngineState.READY)
    with pytest.raises(EngineUnavailable):
        await engine.admit(subject.ask())


async def _drain(stream: AsyncIterator[SequenceEvent]) -> None:
    async for _ in stream:
        pass


async def test_closing_leaves_nothing(subject: Subject) -> None:
    await asyncio.gather(subject.engine.close(), subject.engine.close())
    await subject.engine.close()
    assert subject.engine.health().state is EngineState.CLOSED
    with pytest.raises(EngineUnavailable):
        await subject.engine.admit(subject.ask())
    left = [one for one in children() if "resource_tracker" not in " ".join(one.cmdline())]
    assert left == []
