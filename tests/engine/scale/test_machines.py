"""One model on two machines, one of which is lost, and which find each other again."""

import asyncio
import contextlib
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
from tests.engine.scale.machines import (
    ask_over_http,
    below,
    command,
    kill_all,
    living,
    named_below,
    options_of,
    until_ready,
    until_running,
    write_config,
)
from tests.engine.scale.place import BOUND_S, CONTEXT, drain, named, running, tokens

START_S = 900.0
NODE_END_S = 15.0
"""For processes to end that are told to, and to be killed when they do not."""


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
    left = [*below(further), further]
    kill_all(further)
    began = time.monotonic()
    for stream in streams:
        with pytest.raises(GenerationFailed):
            await asyncio.wait_for(drain(stream), BOUND_S)
    print(f"the further machine killed: errors after {time.monotonic() - began:.2f} s")
    assert engine.health().state is not EngineState.READY
    await until(lambda: engine.health().state is EngineState.FAILED)
    assert named("EngineCore") == named("Worker") == []
    assert living(left, 20) == []


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


async def test_a_server_that_is_started_anew_is_joined_anew(tmp_path: Path, model: Path) -> None:
    config = write_config(tmp_path, model, port=free_port(), http_port=free_port(), tp=2)
    node = ("node", "--config", config, "--rank", 1)
    with command(*node) as first:
        with command("serve", "--config", config) as server:
            await asyncio.to_thread(until_ready, server)
            left = [*below(first), *below(server)]
            server.kill()
        began = time.monotonic()
        with command("serve", "--config", config) as server:
            await asyncio.to_thread(first.wait, BOUND_S + NODE_END_S)
            print(f"serving machine started anew: the further one ended after {time.monotonic() - began:.1f} s")
            assert await asyncio.to_thread(living, left, 20) == []
            with command(*node) as second:
                url = await asyncio.to_thread(until_ready, server)
                print(f"joined anew after {time.monotonic() - began:.1f} s")
                left = [*below(second), *below(server)]
                answer = asyncio.create_task(asyncio.to_thread(ask_over_http, url, CONTEXT - 64))
                await asyncio.to_thread(until_running, url)
                kill_all(second)
                began = time.monotonic()
                assert await asyncio.to_thread(server.wait, BOUND_S + NODE_END_S) == 1
                print(f"further machine killed: the server ended after {time.monotonic() - began:.1f} s")
                assert (await answer) >= 500
                assert await asyncio.to_thread(living, left, 20) == []


@pytest.mark.parametrize("at", ["fork", "worker"])
async def test_a_further_machine_that_is_killed_while_it_joins(tmp_path: Path, model: Path, at: str) -> None:
    config = write_config(tmp_path, model, port=free_port(), http_port=free_port(), tp=2)
    with command("node", "--config", config, "--rank", 1) as node:
        if at == "fork":
            await until(lambda: len(below(node)) == 2, START_S)  # the guardian, and what is to become vLLM's
        else:
            await until(lambda: bool(named_below(node, "Worker")), START_S)
        left = below(node)
        node.kill()
        began = time.monotonic()
        assert await asyncio.to_thread(living, left, 20) == []
        print(f"further machine killed ({at}): nothing left after {time.monotonic() - began:.1f} s")
