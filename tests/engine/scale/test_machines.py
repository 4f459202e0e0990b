"""One model on two machines, one of which is lost; and a server that is told to end while its engine starts."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from mindserve.cli.sockets import bind_all
from mindserve.config.listen import Listen
from mindserve_engine.interface import Engine, GenerationFailed
from mindserve_engine.registry import create_engine
from mindserve_engine.types import EngineState
from tests.engine.contract.subjects import until
from tests.engine.scale.machines import command, kill_all, options_of, write_config
from tests.engine.scale.place import BOUND_S, drain, named, running, tokens

START_S = 900.0


def free_port() -> int:
    (bound,) = bind_all([Listen(host="127.0.0.1", port=0)])
    with bound:
        port: int = bound.getsockname()[1]
        return port


@contextlib.asynccontextmanager
async def on_two_machines(folder: Path, model: Path, **shape: int) -> AsyncIterator[tuple[Engine, psutil.Popen]]:
    config = write_config(folder, model, port=free_port(), **shape)
    engine = create_engine("vllm", options_of(config, model))
    with command("node", "--config", config, "--rank", 1) as further:
        try:
            began = time.monotonic()
            await asyncio.wait_for(engine.start(), START_S)
            print(f"{shape} on two machines: started after {time.monotonic() - began:.1f} s")
            yield engine, further
        finally:
            await engine.close()


async def lose(engine: Engine, further: psutil.Popen, streams: list[Any]) -> None:
    """The further machine; ``streams``, which run there, fail in time, and readiness ends."""
    left = [one for one in [*further.children(recursive=True), further] if one.is_running()]
    kill_all(further)
    began = time.monotonic()
    for stream in streams:
        with pytest.raises(GenerationFailed):
            await asyncio.wait_for(drain(stream), BOUND_S)
    print(f"the further machine killed: errors after {time.monotonic() - began:.2f} s")
    assert engine.health().state is not EngineState.READY
    await until(lambda: engine.health().state is EngineState.FAILED)
    assert named("EngineCore") == named("Worker") == []
    _, alive = psutil.wait_procs(left, timeout=20)
    assert [one for one in alive if one.is_running() and one.status() != psutil.STATUS_ZOMBIE] == []


async def test_a_copy_on_each_of_two_machines(tmp_path: Path, model: Path) -> None:
    async with on_two_machines(tmp_path, model, dp=2) as (engine, further):
        first, second = await asyncio.gather(tokens(engine, "a"), tokens(engine, "b"))
        assert first == second
        here, there = [await running(engine, f"long-{number}") for number in range(2)]
        await lose(engine, further, [there])
        with contextlib.suppress(GenerationFailed):  # what runs here may end before the loss is known
            await asyncio.wait_for(drain(here), BOUND_S)


async def test_one_copy_on_two_machines(tmp_path: Path, model: Path) -> None:
    async with on_two_machines(tmp_path, model, tp=2) as (engine, further):
        assert len(await tokens(engine, "a")) == 6
        await lose(engine, further, [await running(engine, "long")])


async def test_a_signal_while_the_engine_starts_leaves_nothing(tmp_path: Path, model: Path) -> None:
    config = write_config(tmp_path, model)
    with command("serve", "--config", config, "--port", 0) as server:
        await until(lambda: any("EngineCore" in one.name() for one in _below(server)), START_S)
        started = _below(server)
        server.send_signal(signal.SIGTERM)
        began = time.monotonic()
        assert await asyncio.to_thread(server.wait, 60) == 0
        print(f"SIGTERM while it starts: ended after {time.monotonic() - began:.1f} s")
        _, alive = psutil.wait_procs(started, timeout=20)
        assert [one for one in alive if one.status() != psutil.STATUS_ZOMBIE] == []


async def test_a_server_that_is_killed_leaves_nothing(tmp_path: Path, model: Path) -> None:
    config = write_config(tmp_path, model)
    with command("serve", "--config", config, "--port", 0) as server:
        await until(lambda: any("Worker" in one.name() for one in _below(server)), START_S)
        started = _below(server)
        server.kill()
        _, alive = psutil.wait_procs(started, timeout=30)
        assert [one for one in alive if one.status() != psutil.STATUS_ZOMBIE] == []


def _below(server: psutil.Popen) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        found: list[psutil.Process] = server.children(recursive=True)
        return found
    return []
