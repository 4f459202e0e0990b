from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from mindserve.api._generated.models import ErrorBody
from mindserve.api.sse import HEARTBEAT, EventStream, frame, with_heartbeat


def test_a_frame_is_one_line_and_a_blank_one() -> None:
    text = 'a\nb\r\nc\u2028d\u0085 "q" 語'
    framed = frame(ErrorBody(error=text, error_type="NotFoundError"))
    assert framed.startswith(b'data: {"error":"')
    assert framed.endswith(b'"}\n\n')
    assert framed.count(b"\n") == 2
    assert b"\r" not in framed
    assert "語".encode() in framed


async def test_heartbeats_fill_silence_only() -> None:
    go_on = asyncio.Event()

    async def frames() -> AsyncIterator[bytes]:
        yield b"1"
        yield b"2"
        await go_on.wait()
        yield b"3"

    seen: list[bytes] = []
    async for data in with_heartbeat(frames(), 0.02):
        seen.append(data)
        if data == HEARTBEAT:
            go_on.set()
    assert seen[:3] == [b"1", b"2", HEARTBEAT]
    assert seen[-1] == b"3"
    assert set(seen[2:-1]) == {HEARTBEAT}


@pytest.mark.parametrize("broken", [True, False])
async def test_resources_are_closed_whatever_happens(*, broken: bool) -> None:
    closed: list[str] = []
    sent: list[Any] = []

    async def frames() -> AsyncIterator[bytes]:
        yield b"1"
        if broken:
            raise ConnectionError

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError

    resources = AsyncExitStack()
    resources.callback(closed.append, "closed")
    stream = EventStream(frames(), resources=resources)
    if broken:
        with pytest.raises(ConnectionError):
            await stream({}, receive, send)  # type: ignore[arg-type, typeddict-item]
    else:
        await stream({}, receive, send)  # type: ignore[arg-type, typeddict-item]
        assert [message.get("body") for message in sent] == [None, b"1", b""]
    assert closed == ["closed"]
