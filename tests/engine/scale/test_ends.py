"""The end of ``mindserve serve``, however it comes: its status, and that nothing is left of its engine."""

import asyncio
import signal
import time
from pathlib import Path

import psutil

from tests.engine.contract.subjects import until
from tests.engine.scale.machines import below, command, living, named_below, until_ready, write_config
from tests.engine.scale.place import BOUND_S

APPEARS_S = 900.0
END_S = 45.0
"""More than an engine gets to end and be killed."""


async def ends(server: psutil.Popen, what: str, timeout_s: float = END_S) -> int:
    """Its status, after all that is below it now has ended."""
    started, began = below(server), time.monotonic()
    status: int = await asyncio.to_thread(server.wait, timeout_s)
    print(f"{what}: ended with {status} after {time.monotonic() - began:.1f} s")
    assert await asyncio.to_thread(living, started, 20) == []
    print(f"{what}: nothing left after {time.monotonic() - began:.1f} s")
    return status


async def appears(server: psutil.Popen, part: str) -> psutil.Process:
    await until(lambda: bool(named_below(server, part)) or server.poll() is not None, APPEARS_S)
    return named_below(server, part)[0]


async def test_a_signal_while_the_engine_starts(tmp_path: Path, model: Path) -> None:
    with command("serve", "--config", write_config(tmp_path, model), "--port", 0) as server:
        await appears(server, "EngineCore")
        server.send_signal(signal.SIGTERM)
        assert await ends(server, "SIGTERM while it starts") == 0


async def test_a_server_that_is_killed(tmp_path: Path, model: Path) -> None:
    with command("serve", "--config", write_config(tmp_path, model), "--port", 0) as server:
        await appears(server, "Worker")
        server.kill()
        assert await ends(server, "SIGKILL while it starts") == -signal.SIGKILL


async def test_a_core_that_dies_while_it_starts(tmp_path: Path, model: Path) -> None:
    with command("serve", "--config", write_config(tmp_path, model), "--port", 0) as server:
        core = await appears(server, "EngineCore")
        core.kill()
        assert await ends(server, "core killed while it starts") == 1


async def test_a_worker_that_dies_while_it_starts(tmp_path: Path, model: Path) -> None:
    with command("serve", "--config", write_config(tmp_path, model), "--port", 0) as server:
        worker = await appears(server, "Worker")
        worker.kill()
        assert await ends(server, "worker killed while it starts") == 1


async def test_a_core_that_hangs_while_it_starts(tmp_path: Path, model: Path) -> None:
    limit_s = 90
    config = write_config(tmp_path, model, settings={"startTimeout": limit_s})
    with command("serve", "--config", config, "--port", 0) as server:
        core = await appears(server, "EngineCore")
        core.suspend()
        assert await ends(server, "core stopped while it starts", limit_s + END_S) == 1


async def test_a_lost_engine_ends_the_server(tmp_path: Path, model: Path) -> None:
    with command("serve", "--config", write_config(tmp_path, model), "--port", 0) as server:
        await asyncio.to_thread(until_ready, server)
        named_below(server, "EngineCore")[0].kill()
        assert await ends(server, "core killed, onEngineFailure exit", BOUND_S) == 1
