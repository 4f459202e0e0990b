"""Small servers on loopback that answer whatever they like."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]
"""Takes a request, head and body, and writes the response."""

OK: Final = b"HTTP/1.1 200 OK\r\n"
STREAM_HEAD: Final = OK + b"Content-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def json_head(length: int, *more: bytes) -> bytes:
    return (
        OK
        + b"".join(one + b"\r\n" for one in more)
        + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % length
    )


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """Head and body of one request."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    return head + await reader.readexactly(length)


@asynccontextmanager
async def hostile_server(answer: Answer) -> AsyncIterator[str]:
    """The URL of a server that answers each request on a connection of its own."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await answer(await read_request(reader), writer)
        writer.close()
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await writer.wait_closed()
        tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
