"""Whether the server takes work: loading, ready, failed, draining, and which requests are in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from mindserve.api.inflight import LAST_WORDS_S, InFlight
from mindserve.errors import EngineFault, RefusalKind, RequestRefused

RETRY_AFTER_DRAIN_S: Final = 5
"""Another instance, or this one restarted, should answer by then."""


class Lifecycle:
    """The requests of one server, from start to drain. Owned by the server's event loop."""

    def __init__(self, *, drain_timeout_s: float) -> None:
        self._drain_timeout_s = drain_timeout_s
        self._draining = False
        self._requests: set[InFlight] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def is_draining(self) -> bool:
        return self._draining

    @property
    def num_in_flight(self) -> int:
        return len(self._requests)

    @contextmanager
    def in_flight(self, request: InFlight) -> Iterator[None]:
        """Count ``request`` among those that a drain waits for.

        Raises ``RequestRefused`` (UNAVAILABLE) when the server is draining.
        """
        if self._draining:
            raise RequestRefused(
                "the server is shutting down and takes no new requests",
                kind=RefusalKind.UNAVAILABLE,
                retry_after_s=RETRY_AFTER_DRAIN_S,
            )
        self._requests.add(request)
        self._idle.clear()
        try:
            yield
        finally:
            request.finish()
            self._requests.discard(request)
            if not self._requests:
                self._idle.set()

    def begin_drain(self) -> None:
        """Take no new work from now on; readiness says so. Idempotent."""
        self._draining = True

    def give_up_all(self) -> None:
        """End every request in flight now, each with an error to its client."""
        for request in tuple(self._requests):
            request.give_up(EngineFault("the server was shut down before the answer was complete"))

    async def drain(self) -> None:
        """Begin to drain and return when nothing is in flight; what runs longer than the drain timeout is given up."""
        self.begin_drain()
        if await self._becomes_idle(self._drain_timeout_s):
            return
        self.give_up_all()
        await self._becomes_idle(LAST_WORDS_S + 1)

    async def _becomes_idle(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True
