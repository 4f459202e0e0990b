"""Processes of vLLM's are killed: what runs fails in time, readiness ends, another engine starts, nothing is left."""

import asyncio
import time
from pathlib import Path

import pytest

from mindserve_engine.interface import EngineUnavailable, GenerationFailed
from mindserve_engine.types import EngineState
from tests.engine.contract.subjects import until
from tests.engine.scale.place import BOUND_S, ask, drain, kill, named, running, started, tokens

START_S = 900.0


async def test_a_killed_core_and_a_killed_worker_are_replaced(model: Path) -> None:
    async with started(model) as engine:
        expected = await tokens(engine, "before")
        for number, victim in enumerate(("EngineCore", "Worker"), start=1):
            streams = [await running(engine, f"{victim}-{i}") for i in range(2)]
            processes = named(victim)
            assert processes, [one.name() for one in named("")]
            kill(processes[0])
            began = time.monotonic()
            for stream in streams:
                with pytest.raises(GenerationFailed):
                    await asyncio.wait_for(drain(stream), BOUND_S)
            print(f"{victim} killed: error after {time.monotonic() - began:.2f} s")
            assert engine.health().state is not EngineState.READY
            with pytest.raises(EngineUnavailable):
                await engine.admit(ask("while", 1))
            await until(lambda: engine.health().state is EngineState.READY, START_S)
            print(f"{victim} killed: ready again after {time.monotonic() - began:.1f} s")
            assert await tokens(engine, f"after-{victim}") == expected
            assert engine.stats().num_restarts_total == number
            assert (len(named("EngineCore")), len(named("Worker"))) == (1, 1)


async def test_without_restart_the_engine_stays_failed_and_nothing_is_left(model: Path) -> None:
    async with started(model, restart=False) as engine:
        stream = await running(engine, "long")
        kill(named("EngineCore")[0])
        with pytest.raises(GenerationFailed):
            await asyncio.wait_for(drain(stream), BOUND_S)
        await until(lambda: engine.health().state is EngineState.FAILED)
        assert named("EngineCore") == named("Worker") == []


async def test_a_stopped_core_is_lost_although_it_lives(model: Path) -> None:
    async with started(model, restart=False, stall_timeout_s=3.0) as engine:
        stream = await running(engine, "long")
        core = named("EngineCore")[0]
        core.suspend()
        began = time.monotonic()
        with pytest.raises(GenerationFailed):
            await asyncio.wait_for(drain(stream), BOUND_S)
        print(f"core stopped: error after {time.monotonic() - began:.2f} s of 3")
        await until(lambda: engine.health().state is EngineState.FAILED)
        assert not core.is_running()


async def test_one_of_two_copies_is_killed(model: Path) -> None:
    async with started(model, data_parallel=2, restart=False) as engine:
        first, second = await asyncio.gather(tokens(engine, "a"), tokens(engine, "b"))
        assert first == second
        streams = [await running(engine, f"long-{i}") for i in range(2)]
        cores = named("EngineCore")
        assert len(cores) == 2
        kill(cores[1])
        began = time.monotonic()
        for stream in streams:
            with pytest.raises(GenerationFailed):
                await asyncio.wait_for(drain(stream), BOUND_S)
        print(f"one of two copies killed: errors after {time.monotonic() - began:.2f} s")
        await until(lambda: engine.health().state is EngineState.FAILED)
        assert named("EngineCore") == named("Worker") == []
