"""One request from its arrival to its last byte, and the one place where it can be ended early.

A client that leaves, a time limit, the end of the drain and the server's end all come here as ``give_up(cause)``. The
first cause wins; what it stops is whatever the request is doing at that moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from mindserve.errors import MindserveError

T = TypeVar("T")

LAST_WORDS_S: Final = 2.0
"""Time that a given-up request gets to write its error; after that its client is one that does not read."""


class ClientGone(MindserveError):
    """The client closed its connection; nobody reads the answer."""

    def __init__(self) -> None:
        super().__init__("the client closed the connection")


class InFlight:
    """``cause`` is set when the request was ended early. Made in the task that serves the request; not thread-safe."""

    def __init__(self, request_uuid: str, *, arrived_at: float = 0.0, last_words_s: float = LAST_WORDS_S) -> None:
        """``arrived_at``: Unix time in seconds."""
        self.request_uuid = request_uuid
        self.arrived_at = arrived_at
        self._task = asyncio.current_task()
        self._last_words_s = last_words_s
        self._last_words: asyncio.TimerHandle | None = None
        self.cause: MindserveError | None = None
        self._stop: Callable[[], object] | None = None
        self._finished = False

    def give_up(self, cause: MindserveError) -> None:
        """End the request early. Idempotent; harmless after the end."""
        if self._finished or self.cause is not None:
            return
        self.cause = cause
        if self._task is not None:
            self._last_words = asyncio.get_running_loop().call_later(self._last_words_s, self._task.cancel)
        if self._stop is not None:
            self._stop()

    def stop_with(self, stop: Callable[[], object]) -> None:
        """From now on giving up calls ``stop``; it is called at once if the request is given up already."""
        self._stop = stop
        if self.cause is not None:
            stop()

    def raise_if_given_up(self) -> None:
        if self.cause is not None:
            raise self.cause

    async def run(self, work: Awaitable[T]) -> T:
        """Await ``work``, cancelling it when the request is given up; the cause is raised then."""
        task = asyncio.ensure_future(work)
        self.stop_with(task.cancel)
        try:
            result = await task
        except asyncio.CancelledError:
            self.raise_if_given_up()
            raise
        finally:
            self._stop = None
            del task, work  # what it raised leads to this frame, and so to the body: no cycle keeps them
        self.raise_if_given_up()
        return result

    def finish(self) -> None:
        """The last byte is out: nothing can be given up any more."""
        self._finished = True
        self._stop = None
        if self._last_words is not None:
            self._last_words.cancel()
