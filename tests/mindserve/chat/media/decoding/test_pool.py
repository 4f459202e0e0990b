"""The processes that decode: what they may do, and what becomes of items when they end."""

from __future__ import annotations

import asyncio
import errno
import gc
import hashlib
import io
import logging
import os
import select
import signal
import sys
from pathlib import Path

import pytest

from mindserve.chat.media.decoding import pool as pool_module
from mindserve.chat.media.decoding.decode_limits import DecodeLimits
from mindserve.chat.media.decoding.pool import DecodePool
from mindserve.chat.media.decoding.rejected import MediaRejected, PoolUnavailable
from mindserve.chat.media.decoding.worker import decode
from mindserve_engine.types import MediaItem, MediaKind
from tests.mindserve.chat.media.decoding.hostile import ordinary
from tests.mindserve.chat.media.decoding.makers import (
    MODEL,
    image_file,
    picture,
    tone,
    wav_file,
)
from tests.mindserve.chat.media.decoding.pools import ENDLESS, PATIENT, SMALL, descriptors, started, until, until_busy


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


async def test_a_file_may_be_longer_than_a_pipe_or_a_slice() -> None:
    async with started() as pool:
        decoded = await pool.decode(MediaKind.IMAGE, SMALL)
        assert decoded == await pool.decode(MediaKind.IMAGE, SMALL + bytes(10_000_000))


async def test_at_the_deadline_the_process_is_replaced(slow: bytes) -> None:
    limits = DecodeLimits(max_wall_s=1.0, max_cpu_s=3000, max_jpeg_scans=10**9)
    async with started(limits) as pool:
        (before,) = pool.pids
        with pytest.raises(MediaRejected, match="the image takes longer to decode than 1 s, the limit"):
            await pool.decode(MediaKind.IMAGE, slow)
        assert pool.tally.num_replaced == 1
        assert before not in pool.pids
    async with started(ENDLESS) as pool:
        assert (await pool.decode(MediaKind.IMAGE, SMALL)).shape == (56, 84, 3)


async def test_a_killed_process_fails_its_own_item_alone(slow: bytes) -> None:
    async with started(ENDLESS, num_workers=2) as pool:
        failing = asyncio.create_task(pool.decode(MediaKind.IMAGE, slow))
        await until_busy(pool)
        (victim,) = (pid for pid in pool.pids if "3" in descriptors(pid))
        others = [asyncio.create_task(pool.decode(MediaKind.IMAGE, SMALL)) for _ in range(10)]
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(MediaRejected, match="the image ended the process that decoded it"):
            await failing
        assert {decoded.shape for decoded in await asyncio.gather(*others)} == {(56, 84, 3)}
        assert (pool.tally.num_replaced, len(pool.pids), victim in pool.pids) == (1, 2, False)


async def test_a_process_that_ended_while_it_was_idle_is_replaced_unseen() -> None:
    async with started() as pool:
        (victim,) = pool.pids
        watched = os.pidfd_open(victim)
        os.kill(victim, signal.SIGKILL)
        await asyncio.to_thread(select.select, [watched], [], [])
        os.close(watched)
        assert (await pool.decode(MediaKind.IMAGE, SMALL)).shape == (56, 84, 3)
        assert victim not in pool.pids


async def test_a_caller_that_leaves_frees_its_place_soon(slow: bytes) -> None:
    async with started(ENDLESS) as pool:
        (before,) = pool.pids
        leaving = asyncio.create_task(pool.decode(MediaKind.IMAGE, slow))
        await until_busy(pool)
        waiting = asyncio.create_task(pool.decode(MediaKind.IMAGE, SMALL))
        await until(lambda: pool.tally.num_waiting)
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
        await until(lambda: pool.tally.num_waiting)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert (pool.tally.num_waiting, pool.tally.num_replaced, running.done()) == (0, 0, False)
        running.cancel()


async def test_a_caller_that_leaves_costs_no_process_when_its_item_is_soon_done() -> None:
    """Else whoever sends a broken picture beside good ones, and again, would keep the processes from decoding."""
    async with started() as pool:
        before = pool.pids
        for _ in range(5):
            leaving = asyncio.create_task(pool.decode(MediaKind.IMAGE, SMALL))
            await until(lambda: pool.tally.num_busy)
            leaving.cancel()
            await asyncio.wait([leaving])
            assert leaving.cancelled()
            assert (await pool.decode(MediaKind.IMAGE, SMALL)).shape == (56, 84, 3)
        assert (pool.pids, pool.tally.num_replaced, pool.tally.num_busy) == (before, 0, 0)


async def test_what_becomes_of_the_item_of_a_caller_that_left_is_nobodys_business(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with started() as pool:
        leaving = asyncio.create_task(pool.decode(MediaKind.IMAGE, SMALL[: len(SMALL) // 2]))
        await until(lambda: pool.tally.num_busy)
        leaving.cancel()
        await asyncio.wait([leaving])
        await pool.decode(MediaKind.IMAGE, SMALL)
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_closing_ends_processes_and_tells_those_who_wait(slow: bytes) -> None:
    async with started(ENDLESS) as pool:
        (pid,) = pool.pids
        tasks = [asyncio.create_task(pool.decode(MediaKind.IMAGE, slow))]
        await until_busy(pool)
        tasks.append(asyncio.create_task(pool.decode(MediaKind.IMAGE, SMALL)))
        await until(lambda: pool.tally.num_waiting)
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


async def test_without_room_for_its_bytes_an_item_is_not_refused_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    async with started() as pool:
        before = pool.pids
        with monkeypatch.context() as patched:
            patched.setattr(os, "memfd_create", fail)
            with pytest.raises(PoolUnavailable, match="cannot be given to a process"):
                await pool.decode(MediaKind.IMAGE, SMALL)
        assert (await pool.decode(MediaKind.IMAGE, SMALL)).shape == (56, 84, 3)
        assert pool.pids == before


async def test_why_an_item_was_refused_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, pool_module.log.name)
    async with started() as pool:
        with pytest.raises(MediaRejected) as refused:
            await pool.decode(MediaKind.IMAGE, SMALL[: len(SMALL) // 2])
    assert str(refused.value) == "the bytes are no valid PNG image"
    assert "image rejected: the bytes are no valid PNG image (OSError:" in caplog.text
