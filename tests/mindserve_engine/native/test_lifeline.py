"""What an engine process and its parent leave behind, whichever of them ends first and however it ends: nothing."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from engines import answer, make_engine
from fake_runner import reference
from waiting import is_alive, names_in, until

from mindserve_engine.interface import EngineError


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where sockets are made; short, as the names of sockets must be."""
    with tempfile.TemporaryDirectory(prefix="ms-") as directory:
        monkeypatch.setattr(tempfile, "tempdir", directory)
        yield Path(directory)


@pytest.mark.usefixtures("fast_restarts")
async def test_nothing_is_left_behind(scratch: Path) -> None:
    before = names_in(Path("/proc/self/fd"))
    for _ in range(2):
        engine = make_engine()
        await engine.start()
        os.kill(engine.pids[0], signal.SIGKILL)
        await until(lambda: engine.stats().num_restarts_total == 1)  # noqa: B023 - awaited in the same turn
        await answer(engine, "r", [1])
        assert names_in(scratch) == []
        await engine.close()
        assert not any(map(is_alive, engine.pids))
    await until(lambda: names_in(Path("/proc/self/fd")) == before)


PARENT = """
import asyncio, sys
from pathlib import Path
from mindserve_engine.native.process import NativeEngine
from mindserve_engine.options import EngineOptions

async def main():
    engine = NativeEngine(EngineOptions(model_path=Path("none"), runner=sys.argv[1]))
    starting = asyncio.ensure_future(engine.start())
    while not (engine.pids and (engine.health().progress or starting.done())):
        await asyncio.sleep(0.01)
    print(*engine.pids, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.parametrize("runner", ["fake_core:load_runner", "fake_core:never_load"])
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_process_does_not_outlive_its_parent(runner: str, end: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, runner], stdout=subprocess.PIPE) as parent:
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.send_signal(end)
        parent.wait(30)
    asyncio.run(until(lambda: not is_alive(pid)))


ORPHAN = """
import asyncio, os, signal
from pathlib import Path
import zmq
from mindserve_engine.native.child import Child
from mindserve_engine.options import EngineOptions

async def main():
    options = EngineOptions(model_path=Path("none"), runner="fake_core:load_runner")
    process = Child(options, zmq.Context(), on_message=print, on_exit=print)
    print(process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def test_sockets_of_a_parent_killed_while_its_process_starts_are_removed(scratch: Path) -> None:
    parent = subprocess.run(
        [sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(scratch)}, check=False
    )
    assert parent.returncode == -signal.SIGKILL
    pid = int(parent.stdout)
    asyncio.run(until(lambda: not is_alive(pid)))
    assert names_in(scratch) == []


async def test_sockets_lose_their_names_while_the_model_loads(scratch: Path) -> None:
    engine = make_engine("never_load")
    starting = asyncio.ensure_future(engine.start())
    await until(lambda: engine.health().progress == 0.25)
    assert names_in(scratch) == []
    await engine.close()
    with pytest.raises(EngineError, match="closed"):
        await starting


async def test_signals_for_all_processes_leave_the_engine_alone() -> None:
    engine = make_engine()
    await engine.start()
    (pid,) = engine.pids
    assert os.getpgid(pid) != os.getpgid(0)
    for signum in (signal.SIGINT, signal.SIGTERM):
        os.kill(pid, signum)
    assert await answer(engine, "r", [1, 2]) == reference([1, 2], 4)
    assert engine.pids == [pid]
    await engine.close()
