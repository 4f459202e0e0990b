"""Work on several items at a time, of which the first failure ends the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def together(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Their results in order. Raises what the first one that failed raised.

    A failure leads to the frames it went through, and those to the bytes of the items. Nothing that leads back to it is
    left here: in a cycle the bytes would stay until a full collection of garbage, which knows nothing of their size.
    """
    tasks: list[asyncio.Task[T]] = []
    failure: BaseException | None = None
    try:
        await _run(works, tasks)
        return [task.result() for task in tasks]
    except BaseExceptionGroup as failures:
        failure = failures.exceptions[0]
        failures.__traceback__ = None  # through a frame of the group that refers to all of them
    finally:
        tasks.clear()
    try:
        raise failure.with_traceback(None)
    finally:
        failure = None


async def _run(works: Iterable[Coroutine[Any, Any, T]], tasks: list[asyncio.Task[T]]) -> None:
    """A frame of its own for the group, which keeps its failures."""
    async with asyncio.TaskGroup() as group:
        tasks += map(group.create_task, works)
