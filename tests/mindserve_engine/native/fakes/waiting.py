"""Waiting for what another process brings about, and looking at it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path


async def until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    """Return as soon as ``condition`` holds."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - there is no event for it: the point is what is seen from outside
            await asyncio.sleep(0.002)


def is_alive(pid: int) -> bool:
    """Whether the process runs (one that has ended but was not waited for does not)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())
