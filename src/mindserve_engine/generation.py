"""The client side of one request: events wait here for their consumer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from mindserve_engine.interface import GenerationFailed
from mindserve_engine.types import GenerationRequest, SequenceEvent


def num_media_bytes(request: GenerationRequest) -> int:
    """Pixels and samples of the request."""
    return sum(len(item.data) for item in request.media)


class QueuedGeneration:
    """Implements ``interface.Generation``. Holds at most ``max_tokens`` events of each sequence, however slow the
    consumer."""

    __slots__ = ("_abort", "_events", "_failure", "_live", "_open", "_waiter", "num_media_bytes", "request_id")

    def __init__(self, request: GenerationRequest, abort: Callable[[str, int | None], None]) -> None:
        """``abort`` tells the engine to drop a request, or one of its sequences."""
        self.request_id = request.request_id
        self.num_media_bytes = num_media_bytes(request)
        """Pixels and samples that the process keeps for the request until it ends."""
        self._open = set(range(request.num_sequences))
        """Sequences whose end the consumer has yet to be told of."""
        self._live = set(self._open)
        """Sequences that the process works on, as far as is known here."""
        self._abort = abort
        self._events: deque[SequenceEvent] = deque()
        self._failure: str | None = None
        self._waiter: asyncio.Future[None] | None = None

    def __aiter__(self) -> QueuedGeneration:
        return self

    async def __anext__(self) -> SequenceEvent:
        while not self._events:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise GenerationFailed(failure)
            if not self._open:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._events.popleft()

    def stop(self, index: int) -> None:
        if index in self._open:
            self._open.remove(index)
            self._live.discard(index)
            # those of the others stay: an end that the consumer has yet to be told of may be among them
            self._events = deque(event for event in self._events if event.index != index)
            self._wake_up()
            self._abort(self.request_id, index if self._live else None)

    def abort(self) -> None:
        self._events.clear()
        if self._open:
            self._open.clear()
            self._wake_up()
            self._abort(self.request_id, None)

    def push(self, event: SequenceEvent) -> bool:
        """Take an event in; True when the process has nothing left to do for the request."""
        is_end = event.finish_reason is not None or event.failure is not None
        if is_end:
            self._live.discard(event.index)
        if event.index in self._open:  # else given up, but the process did not know yet
            if is_end:
                self._open.remove(event.index)
            self._events.append(event)
            self._wake_up()
        return not self._live

    def fail(self, reason: str) -> None:
        """End with ``GenerationFailed`` after the events that are there."""
        if self._open:
            self._open.clear()
            self._failure = reason
            self._wake_up()

    def _wake_up(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
