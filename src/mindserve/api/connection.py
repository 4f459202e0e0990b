"""Watching the client: a request is given up as soon as its connection closes, streaming or not, queued or running."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from litestar.types import Receive

from mindserve.api.inflight import ClientGone, InFlight


async def _watch(receive: Receive, request: InFlight) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    request.give_up(ClientGone())


@asynccontextmanager
async def watched_client(receive: Receive, request: InFlight) -> AsyncIterator[None]:
    """Give ``request`` up when the client leaves. The request body must have been read: what comes after it is either
    nothing or the disconnect."""
    watcher = asyncio.create_task(_watch(receive, request))
    try:
        yield
    finally:
        watcher.cancel()
