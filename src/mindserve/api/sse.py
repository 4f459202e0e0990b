"""Server-sent events as this API frames them: ``data: <compact JSON>``, a blank line, LF only, ``[DONE]`` last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack
from typing import Final

import msgspec
from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send

DONE: Final = b"data: [DONE]\n\n"
HEARTBEAT: Final = b": keep-alive\n\n"
HEADERS: Final = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}

_ENCODER: Final = msgspec.json.Encoder()


def frame(event: msgspec.Struct) -> bytes:
    """One event. JSON escapes every line break inside ``event``, so the frame is always one line and a blank one."""
    return b"data: " + _ENCODER.encode(event) + b"\n\n"


async def with_heartbeat(frames: AsyncIterator[bytes], interval_s: float) -> AsyncGenerator[bytes, None]:
    """``frames`` with a comment put in whenever nothing came for ``interval_s`` seconds."""
    pending: asyncio.Future[bytes] = asyncio.ensure_future(_next(frames))
    try:
        while True:
            done, _ = await asyncio.wait((pending,), timeout=interval_s)
            if not done:
                yield HEARTBEAT
                continue
            try:
                yield pending.result()
            except StopAsyncIteration:
                return
            pending = asyncio.ensure_future(_next(frames))
    finally:
        pending.cancel()


async def _next(frames: AsyncIterator[bytes]) -> bytes:
    return await anext(frames)


class EventStream(ASGIResponse):
    """Sends the headers at once, then each item of ``frames`` as one write, and closes ``resources`` at the end.

    Litestar's own streaming response is not used: it never starts an iterator whose client left early, so what the
    iterator should have released would stay. Disconnects are watched by ``mindserve.api.connection``.
    """

    _should_set_content_length = False

    def __init__(self, frames: AsyncIterator[bytes], *, resources: AsyncExitStack) -> None:
        super().__init__(headers=HEADERS)
        self._frames = frames
        self._resources = resources

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._resources:
            await super().__call__(scope, receive, send)

    async def send_body(self, send: Send, receive: Receive) -> None:
        async for data in self._frames:
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
