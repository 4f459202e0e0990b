"""What a decoding process may do, what it may say, and that it outlives nothing."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from mindserve.chat.media.decoding import pool as pool_module
from mindserve.chat.media.decoding import wire, worker_process
from mindserve.chat.media.decoding.decode_limits import DecodeLimits
from mindserve.chat.media.decoding.rejected import MediaRejected
from mindserve_engine.types import MediaKind
from tests.mindserve.chat.media.decoding.hostile import ordinary
from tests.mindserve.chat.media.decoding.makers import clip, deflated_zeros, image_file, picture, png, video_file
from tests.mindserve.chat.media.decoding.pools import SMALL, descriptors, started, told, until

ROOT = Path(__file__).parents[5]


def _limits(pid: int) -> dict[str, str]:
    lines = told(pid, "limits").splitlines()[1:]
    return {line[:26].strip(): line[26:46].strip() for line in lines}


def _package(name: str) -> list[str]:
    return list(sys.modules[name].__path__)


async def test_a_process_has_nothing_but_its_socket() -> None:
    async with started() as pool:
        (pid,) = pool.pids
        files = descriptors(pid)
        assert files.keys() == {"0", "1", "2"}
        assert files["0"].startswith("socket:")
        assert files["1"] == files["2"] == "/dev/null"
        assert told(pid, "environ") == "OPENBLAS_NUM_THREADS=1\0"
        assert "\0-I\0" in told(pid, "cmdline")


async def test_a_process_keeps_limits() -> None:
    limits = DecodeLimits(max_memory_bytes=1_000_000_000, max_cpu_s=7)
    async with started(limits) as pool:
        await pool.decode(MediaKind.IMAGE, SMALL)
        kept = _limits(pool.pids[0])
    assert kept["Max address space"] == "1000000000"
    assert kept["Max file size"] == kept["Max core file size"] == "0"
    assert kept["Max open files"] == "16"
    assert 7 < int(kept["Max cpu time"]) < 60


def test_a_process_imports_little() -> None:
    source = "import sys; sys.path[:0] = sys.argv[1:]; import mindserve.chat.media.decoding.worker; print(*sys.modules)"
    roots = [str(Path(path).parent) for path in (*_package("mindserve"), *_package("mindserve_engine"))]
    done = subprocess.run([sys.executable, "-I", "-c", source, *roots], capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert {"av", "PIL.Image", "numpy"} <= modules
    ours = {name for name in modules if name.startswith("mindserve")}
    assert not {"asyncio", "mindserve.chat.media.decoding.pool", "mindserve_engine.interface"} & modules
    foreign = {name.partition(".")[0] for name in modules - ours} - sys.stdlib_module_names
    parts = {"cython_runtime", "typing_extensions"}  # of those libraries
    assert {name for name in foreign if not name.startswith("_")} - parts == {"PIL", "av", "msgspec", "numpy"}


async def test_above_its_share_of_processor_time_a_process_is_ended(
    slow: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, pool_module.log.name)
    limits = DecodeLimits(max_wall_s=3600.0, max_cpu_s=1, max_jpeg_scans=10**9)
    async with started(limits) as pool:
        for _ in range(2):
            with pytest.raises(MediaRejected, match="the image ended the process that decoded it"):
                await pool.decode(MediaKind.IMAGE, slow)
        assert (await pool.decode(MediaKind.IMAGE, SMALL)).shape == (56, 84, 3)
        assert pool.tally.num_replaced == 2
    assert caplog.text.count(f"the decoding process ended (exit status {-signal.SIGXCPU})") == 2


async def test_each_item_has_its_own_share_of_processor_time() -> None:
    """Many small ones take more than one share together."""
    async with started(DecodeLimits(max_wall_s=3600.0, max_cpu_s=1)) as pool:
        data = image_file(picture(1500, 2000), "JPEG")
        used = 0.0
        while used < 2.5:
            await pool.decode(MediaKind.IMAGE, data)
            fields = told(pool.pids[0], "stat").rpartition(")")[2].split()
            used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        assert pool.tally.num_replaced == 0


async def test_an_item_that_takes_too_much_memory_is_refused_and_the_process_lives_on() -> None:
    async with started(DecodeLimits(max_wall_s=3600.0, max_memory_bytes=420_000_000)) as pool:
        before = pool.pids
        with pytest.raises(MediaRejected, match="the image takes more memory to decode than is allowed"):
            await pool.decode(MediaKind.IMAGE, png(8000, 8000, deflated_zeros(8001 * 8000)))
        assert (await pool.decode(MediaKind.IMAGE, SMALL)).shape == (56, 84, 3)
        assert (pool.pids, pool.tally.num_replaced) == (before, 0)


async def test_the_least_memory_that_may_be_set_is_enough_for_what_people_send() -> None:
    schema = yaml.safe_load((ROOT / "spec" / "config.schema.yaml").read_text("utf-8"))
    least = schema["$defs"]["MediaConfig"]["properties"]["decodeMemory"]["minimum"]
    photograph = image_file(picture(3000, 4000), "JPEG")
    film = video_file(clip(8, 2304, 4096), preset="ultrafast")
    async with started(DecodeLimits(max_wall_s=3600.0, max_memory_bytes=least * 2**20)) as pool:
        assert (await pool.decode(MediaKind.IMAGE, photograph)).shape == (840, 1148, 3)
        assert (await pool.decode(MediaKind.VIDEO, film)).shape[0] == 4
        for kind, data, shape in ordinary():
            assert (await pool.decode(kind, data)).shape == shape


LIAR = """
import socket
link = socket.socket(fileno=0)
link.recv(int.from_bytes(link.recv(4), "big"), socket.MSG_WAITALL)
link.sendall(b"r")
while socket.recv_fds(link, 1, 1)[0]:
    link.sendall({answer!r})
"""


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff\xff\xff\xff",
        b"\0\0\0\3abc",
        wire.encode(wire.Decoded((2**20, 2**20, 3))),
        wire.encode(wire.Decoded((56, 84, 4))),
        wire.encode(wire.Decoded((56, 85, 3))),
        wire.encode(wire.Decoded((-56, -84, 3))),
        wire.encode(wire.Decoded((0, 84, 3))),
        wire.encode(wire.Decoded((16_000,))),
        wire.encode(wire.Decoded((4, 56, 84, 3), 0.5)),
        wire.encode(wire.Decoded(())),
    ],
)
async def test_a_process_that_says_what_cannot_be_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    monkeypatch.setattr(worker_process, "_BOOT", LIAR.format(answer=answer))
    async with started() as pool:
        (before,) = pool.pids
        with pytest.raises(MediaRejected, match="the image ended the process that decoded it"):
            await pool.decode(MediaKind.IMAGE, SMALL)
        assert before not in pool.pids


ORPHAN = """
import asyncio, sys
from mindserve.chat.media.decoding.decode_limits import DecodeLimits
from mindserve.chat.media.decoding.pool import DecodePool
from mindserve_engine.types import MediaKind
from tests.mindserve.chat.media.decoding.makers import MODEL

async def main():
    pool = DecodePool(MODEL, DecodeLimits(max_wall_s=3600.0, max_cpu_s=3000, max_jpeg_scans=10**9), num_workers=2)
    await pool.start()
    with open(sys.argv[1], "rb") as file:
        task = asyncio.create_task(pool.decode(MediaKind.IMAGE, file.read()))
    print(*pool.pids, flush=True)
    await task

asyncio.run(main())
"""


async def test_no_process_outlives_a_server_that_is_killed(slow: bytes, tmp_path: Path) -> None:
    """One of its processes is decoding, the other idle."""
    path = tmp_path / "slow.jpg"
    path.write_bytes(slow)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ORPHAN, str(path), stdout=subprocess.PIPE, env=environ
    )
    assert server.stdout is not None
    pids = [int(pid) for pid in (await server.stdout.readline()).split()]
    assert len(pids) == 2
    watched = [os.pidfd_open(pid) for pid in pids]
    await until(lambda: any("3" in descriptors(pid) for pid in pids))
    server.kill()
    await server.wait()
    for descriptor in watched:
        ended, _, _ = await asyncio.to_thread(select.select, [descriptor], [], [], 60)
        os.close(descriptor)
        assert ended


async def test_the_event_loops_thread_makes_the_processes() -> None:
    """They die with the thread that made them: no other may do it."""
    seen: list[Any] = []
    original = worker_process.subprocess.Popen

    class Watched(original):  # type: ignore[misc,valid-type]  # a class of the standard library
        def __init__(self, *args: Any, **options: Any) -> None:
            seen.append(asyncio.get_running_loop())
            super().__init__(*args, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(worker_process.subprocess, "Popen", Watched)
        async with started(num_workers=2):
            assert seen == [asyncio.get_running_loop()] * 2
