"""Connections of the suite's client."""

from __future__ import annotations

import asyncio
from typing import cast

from conformance.client import Limits, Sent, Trouble, open_client
from tests.conformance.hostile import hostile_server, json_head

HELLO = Sent("GET", "/v1/models", {}, None)
LIMITS = Limits(request_timeout_s=20, max_body_bytes=1000, max_events=10, concurrency=2)


class _AnswersOnce(asyncio.Protocol):
    """A connection that is kept after its first answer and closes when it is used again."""

    def __init__(self, connections: list[_AnswersOnce]) -> None:
        self._num_requests = 0
        connections.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._num_requests += data.count(b"\r\n\r\n")
        if self._num_requests == 1:
            self._transport.write(json_head(2) + b"{}")
        else:
            self._transport.close()


async def test_a_kept_connection_that_closes_is_no_answer_and_no_fault() -> None:
    """As servers do after an error of their own: the answer is complete, and the next request finds nobody."""
    connections: list[_AnswersOnce] = []
    loop = asyncio.get_running_loop()
    async with await loop.create_server(lambda: _AnswersOnce(connections), "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with open_client(url, LIMITS, {}, verify=True) as client:
            answers = [await client.send(HELLO) for _ in range(2)]
    assert [(one.status, one.trouble) for one in answers] == [(200, None), (200, None)]
    assert len(connections) == 2


async def test_a_server_that_closes_without_an_answer_is_broken() -> None:
    async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
        """Nothing is said."""

    async with hostile_server(answer) as url, open_client(url, LIMITS, {}, verify=True) as client:
        exchange = await client.send(HELLO)
    assert (exchange.status, exchange.trouble) == (None, Trouble.BROKEN)
