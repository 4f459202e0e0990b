"""The processes that decode: what they may do, and what becomes of items when they end."""

from __future__ import annotations

import asyncio
import hashlib
import io
import logging
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mindserve.chat.media import pool as pool_module
from mindserve.chat.media import wire, worker_process
from mindserve.chat.media.decode_limits import DecodeLimits
from mindserve.chat.media.pool import DecodePool
from mindserve.chat.media.rejected import MediaRejected, PoolUnavailable
from mindserve.chat.media.worker import decode
from mindserve_engine.types import MediaItem, MediaKind
from tests.mindserve.chat.media.hostile import ordinary
from tests.mindserve.chat.media.makers import (
    MODEL,
    deflated_zeros,
    image_file,
    picture,
    png,
    tone,
    wav_file,
    with_scans,
)

PATIENT = DecodeLimits(max_wall_s=120.0)
ENDLESS = DecodeLimits(max_wall_s=120.0, max_cpu_s=110, max_jpeg_scans=10**9)
"""With these a picture of many scans is decoded for longer than any test waits."""
SMALL = image_file(picture(56, 84))


@pytest.fixture(scope="module")
def slow() -> bytes:
    return with_scans(image_file(np.zeros((4000, 4000), np.uint8), "JPEG", progressive=True), 100_000)


@asynccontextmanager
async def started(limits: DecodeLimits = PATIENT, *, num_workers: int = 1, **options: int) -> AsyncIterator[DecodePool]:
    pool = DecodePool(MODEL, limits, num_workers=num_workers, **options)
    try:
        await pool.start()
        yield pool
    finally:
        await pool.close()


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - other processes set no event
        await asyncio.sleep(0)


async def until_busy(pool: DecodePool) -> None:
    """Until a process holds the file of an item."""
    await until(lambda: any("3" in _descriptors(pid) for pid in pool.pids))


def _descriptors(pid: int) -> dict[str, str]:
    return {file.name: str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir()}


def _told(pid: int, name: str) -> str:
    """What the kernel tells of a process."""
    return Path(f"/proc/{pid}/{name}").read_text("utf-8")


def _limits(pid: int) -> dict[str, str]:
    lines = _told(pid, "limits").splitlines()[1:]
    return {line[:26].strip(): line[26:46].strip() for line in lines}


def _is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


async def test_what_comes_through_a_process_is_what_the_decoders_make() -> None:
    async with started(num_workers=2) as pool:
        items = ordinary()
        got = await asyncio.gather(*(pool.decode(kind, data) for kind, data, _ in items))
        for (kind, data, shape), decoded in zip(items, got, strict=True):
            array, seconds_per_frame = decode(kind, io.BytesIO(data), MODEL, PATIENT)
            assert (decoded.kind, decoded.shape, decoded.seconds_per_frame) == (kind, shape, seconds_per_frame)
            assert decoded.data == array.tobytes()
            assert decoded.num_tokens > 0


async def test_the_digest_is_that_of_what_the_model_sees() -> None:
    async with started() as pool:
        first = await pool.decode(MediaKind.IMAGE, SMALL)
        again = await pool.decode(MediaKind.IMAGE, image_file(picture(56, 84), compress_level=0))
        other = await pool.decode(MediaKind.IMAGE, image_file(picture(56, 84, seed=1)))
    assert first.digest == again.digest == hashlib.sha256(b"image (56, 84, 3) 0.0\n" + first.data).digest()
    assert (other.shape, other.digest != first.digest) == (first.shape, True)


async def test_an_item_gets_its_place_in_the_prompt() -> None:
    async with started() as pool:
        decoded = await pool.decode(MediaKind.AUDIO, wav_file(tone(0.5)))
    assert decoded.at(7) == MediaItem(
        kind=MediaKind.AUDIO, start=7, num_tokens=12, shape=(8000,), data=decoded.data, digest=decoded.digest
    )


@pytest.mark.parametrize("num_bytes", [0, 10_000_000])
async def test_a_descriptor_is_read_from_its_start(tmp_path: Path, num_bytes: int) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(SMALL + bytes(num_bytes))
    async with started() as pool:
        with path.open("rb") as file:
            file.seek(0, io.SEEK_END)
            decoded = await pool.decode(MediaKind.IMAGE, file.fileno())
            os.fstat(file.fileno())  # still open
        assert decoded == await pool.decode(MediaKind.IMAGE, SMALL + bytes(num_bytes))


async def test_a_process_has_nothing_but_its_socket() -> None:
    async with started() as pool:
        (pid,) = pool.pids
        files = _descriptors(pid)
        assert files.keys() == {"0", "1", "2"}
        assert files["0"].startswith("socket:")
        assert files["1"] == files["2"] == "/dev/null"
        assert _told(pid, "environ") == "OPENBLAS_NUM_THREADS=1\0"
        assert "\0-I\0" in _told(pid, "cmdline")


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
    source = "import sys; sys.path[:0] = sys.argv[1:]; import mindserve.chat.media.worker; print(*sys.modules)"
    roots = [str(Path(path).parent) for path in (*_package("mindserve"), *_package("mindserve_engine"))]
    done = subprocess.run([sys.executable, "-I", "-c", source, *roots], capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert {"av", "PIL.Image", "numpy"} <= modules
    heavy = {"torch", "transformers", "litestar", "asyncio", "mindserve.chat.media.pool", "mindserve_engine.interface"}
    assert not heavy & modules


def _package(name: str) -> list[str]:
    return list(sys.modules[name].__path__)


async def test_at_the_deadline_the_process_is_replaced(slow: bytes) -> None:
    limits = DecodeLimits(max_wall_s=1.0, max_cpu_s=110, max_jpeg_scans=10**9)
    async with started(limits) as pool:
        (before,) = pool.pids
        with pytest.raises(MediaRejected, match="the image takes longer to decode than 1 s, the limit"):
            await pool.decode(MediaKind.IMAGE, slow)
        assert pool.num_lost == 1
        assert before not in pool.pids
    async with started(ENDLESS) as pool:
        assert (await pool.decode(MediaKind.IMAGE, SMALL)).shape == (56, 84, 3)


async def test_above_its_share_of_processor_time_a_process_is_ended(
    slow: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, pool_module.log.name)
    limits = DecodeLimits(max_wall_s=120.0, max_cpu_s=1, max_jpeg_scans=10**9)
    async with started(limits) as pool:
        for _ in range(2):
            with pytest.raises(MediaRejected, match="the image ended the process that decoded it"):
                await pool.decode(MediaKind.IMAGE, slow)
        assert (await pool.decode(MediaKind.IMAGE, SMALL)).shape == (56, 84, 3)
        assert pool.num_lost == 2
    assert caplog.text.count(f"the decoding process ended (exit status {-signal.SIGXCPU})") == 2


async def test_each_item_has_its_own_share_of_processor_time() -> None:
    """Many small ones take more than one share together."""
    async with started(DecodeLimits(max_wall_s=120.0, max_cpu_s=1)) as pool:
        data = image_file(picture(1500, 2000), "JPEG")
        used = 0.0
        while used < 2.5:
            await pool.decode(MediaKind.IMAGE, data)
            fields = _told(pool.pids[0], "stat").rpartition(")")[2].split()
            used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        assert pool.num_lost == 0


async def test_an_item_that_takes_too_much_memory_is_refused_and_the_process_lives_on() -> None:
    async with started(DecodeLimits(max_wall_s=120.0, max_memory_bytes=420_000_000)) as pool:
        before = pool.pids
        with pytest.raises(MediaRejected, match="the image takes more memory to decode than is allowed"):
            await pool.decode(MediaKind.IMAGE, png(8000, 8000, deflated_zeros(8001 * 8000)))
        assert (await pool.decode(MediaKind.IMAGE, SMALL)).shape == (56, 84, 3)
        assert (pool.pids, pool.num_lost) == (before, 0)


async def test_a_killed_process_fails_its_own_item_alone(slow: bytes) -> None:
    async with started(ENDLESS, num_workers=2) as pool:
        failing = asyncio.create_task(pool.decode(MediaKind.IMAGE, slow))
        await until_busy(pool)
        (victim,) = (pid for pid in pool.pids if "3" in _descriptors(pid))
        others = [asyncio.create_task(pool.decode(MediaKind.IMAGE, SMALL)) for _ in range(10)]
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(MediaRejected, match="the image ended the process that decoded it"):
            await failing
        assert {decoded.shape for decoded in await asyncio.gather(*others)} == {(56, 84, 3)}
        assert (pool.num_lost, len(pool.pids), victim in pool.pids) == (1, 2, False)


async def test_a_process_that_ended_while_it_was_idle_is_replaced_unseen() -> None:
    async with started() as pool:
        (victim,) = pool.pids
        watched = os.pidfd_open(victim)
        os.kill(victim, signal.SIGKILL)
        await asyncio.to_thread(select.select, [watched], [], [])
        os.close(watched)
        assert (await pool.decode(MediaKind.IMAGE, SMALL)).shape == (56, 84, 3)
        assert victim not in pool.pids


async def test_a_caller_that_leaves_frees_its_place(slow: bytes) -> None:
    async with started(ENDLESS) as pool:
        (before,) = pool.pids
        leaving = asyncio.create_task(pool.decode(MediaKind.IMAGE, slow))
        await until_busy(pool)
        waiting = asyncio.create_task(pool.decode(MediaKind.IMAGE, SMALL))
        await until(lambda: pool.num_waiting)
        leaving.cancel()
        assert (await waiting).shape == (56, 84, 3)
        assert leaving.cancelled()
        assert before not in pool.pids
    assert _is_gone(before)


async def test_a_caller_that_leaves_the_queue_is_forgotten(slow: bytes) -> None:
    async with started(ENDLESS) as pool:
        running = asyncio.create_task(pool.decode(MediaKind.IMAGE, slow))
        await until_busy(pool)
        waiting = asyncio.create_task(pool.decode(MediaKind.IMAGE, SMALL))
        await until(lambda: pool.num_waiting)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert (pool.num_waiting, pool.num_lost, running.done()) == (0, 0, False)
        running.cancel()


async def test_the_queue_is_bounded(slow: bytes) -> None:
    async with started(ENDLESS, max_waiting=2) as pool:
        running = asyncio.create_task(pool.decode(MediaKind.IMAGE, slow))
        await until_busy(pool)
        waiting = [asyncio.create_task(pool.decode(MediaKind.IMAGE, SMALL)) for _ in range(2)]
        await until(lambda: pool.num_waiting == 2)
        with pytest.raises(PoolUnavailable, match="2 media items wait to be decoded, the limit"):
            await pool.decode(MediaKind.IMAGE, SMALL)
        running.cancel()
        assert len(await asyncio.gather(*waiting)) == 2


async def test_closing_ends_processes_and_tells_those_who_wait(slow: bytes) -> None:
    async with started(ENDLESS) as pool:
        (pid,) = pool.pids
        tasks = [asyncio.create_task(pool.decode(MediaKind.IMAGE, slow))]
        await until_busy(pool)
        tasks.append(asyncio.create_task(pool.decode(MediaKind.IMAGE, SMALL)))
        await until(lambda: pool.num_waiting)
        await pool.close()
        assert _is_gone(pid)
        for task in tasks:
            with pytest.raises(PoolUnavailable, match="the server is closing"):
                await task
        with pytest.raises(PoolUnavailable, match="the server is closing"):
            await pool.decode(MediaKind.IMAGE, SMALL)
        assert pool.pids == []


async def test_without_a_start_processes_start_when_they_are_needed() -> None:
    pool = DecodePool(MODEL, PATIENT)
    assert pool.pids == []
    try:
        assert (await pool.decode(MediaKind.IMAGE, SMALL)).shape == (56, 84, 3)
        assert len(pool.pids) == 1
    finally:
        await pool.close()


@pytest.mark.parametrize("executable", ["/bin/false", "/nowhere/python"])
async def test_processes_that_cannot_start_are_the_servers_fault(
    monkeypatch: pytest.MonkeyPatch, executable: str
) -> None:
    pool = DecodePool(MODEL, PATIENT)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", executable)
        for _ in range(2):
            with pytest.raises(PoolUnavailable, match="no process that decodes media can be started"):
                await pool.decode(MediaKind.IMAGE, SMALL)
        with pytest.raises(PoolUnavailable, match="no process that decodes media can be started"):
            await pool.start()
    assert pool.pids == []
    assert (await pool.decode(MediaKind.IMAGE, SMALL)).shape == (56, 84, 3)
    await pool.close()


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
from mindserve.chat.media.decode_limits import DecodeLimits
from mindserve.chat.media.pool import DecodePool
from mindserve_engine.types import MediaKind
from tests.mindserve.chat.media.makers import MODEL

async def main():
    pool = DecodePool(MODEL, DecodeLimits(max_wall_s=120.0, max_cpu_s=110, max_jpeg_scans=10**9), num_workers=2)
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
    await until(lambda: any("3" in _descriptors(pid) for pid in pids))
    server.kill()
    await server.wait()
    for descriptor in watched:
        ended, _, _ = await asyncio.to_thread(select.select, [descriptor], [], [], 60)
        os.close(descriptor)
        assert ended


async def test_why_an_item_was_refused_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, pool_module.log.name)
    async with started() as pool:
        with pytest.raises(MediaRejected) as refused:
            await pool.decode(MediaKind.IMAGE, SMALL[: len(SMALL) // 2])
    assert str(refused.value) == "the bytes are no valid PNG image"
    assert "image rejected: the bytes are no valid PNG image (OSError:" in caplog.text


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
