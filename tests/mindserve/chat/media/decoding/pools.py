"""Pools of decoding processes, and what can be seen of these from outside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np

from mindserve.chat.media.decoding.decode_limits import DecodeLimits
from mindserve.chat.media.decoding.pool import DecodePool
from tests.mindserve.chat.media.decoding.makers import MODEL, image_file, picture, with_scans

PATIENT = DecodeLimits(max_wall_s=3600.0)
ENDLESS = DecodeLimits(max_wall_s=3600.0, max_cpu_s=3000, max_jpeg_scans=10**9)
"""With these a picture of many scans is decoded for longer than any test waits."""
SMALL = image_file(picture(56, 84))


def slow_picture() -> bytes:
    return with_scans(image_file(np.zeros((4000, 4000), np.uint8), "JPEG", progressive=True), 100_000)


@asynccontextmanager
async def started(limits: DecodeLimits = PATIENT, *, num_workers: int = 1) -> AsyncIterator[DecodePool]:
    pool = DecodePool(MODEL, limits, num_workers=num_workers)
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
    await until(lambda: any("3" in descriptors(pid) for pid in pool.pids))


def descriptors(pid: int) -> dict[str, str]:
    return {file.name: str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir()}


def told(pid: int, name: str) -> str:
    """What the kernel tells of a process."""
    return Path(f"/proc/{pid}/{name}").read_text("utf-8")
