"""Bodies as large as the document allows get through to the rules; what they held is let go."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from mindserve.config.settings import MediaSettings, ServeSettings
from tests.serving import HELLO, MODEL, Model, chat_body, eventually, is_idle, running

CHAT = "/v1/chat/completions"
MIB = 1024 * 1024


def base64_of(num_bytes: int) -> str:
    """Base64 of so many bytes, without the time that encoding takes."""
    return "A" * (num_bytes // 3 * 4) + {0: "", 1: "AA==", 2: "AAA="}[num_bytes % 3]


@pytest.mark.parametrize(
    ("part", "accepted"),
    [
        ({"type": "image_url", "image_url": f"data:image/jpeg;base64,{base64_of(40 * MIB)}"}, True),
        ({"type": "input_audio", "input_audio": {"data": base64_of(20 * MIB), "format": "mp3"}}, True),
        ({"type": "input_audio", "input_audio": {"data": base64_of(20 * MIB + 3), "format": "mp3"}}, False),
    ],
    ids=["image of 40 MB", "recording of 20 MB", "recording of more"],
)
async def test_documented_sizes_arrive(model: Model, part: dict[str, Any], accepted: bool) -> None:
    """The model is one of text: that is what it says, not that the body is too large."""
    body = json.dumps(chat_body(messages=[{"role": "user", "content": [part]}])).encode()
    async with running(model) as live, httpx2.AsyncClient(base_url=live.url, timeout=60) as client:
        response = await client.post(CHAT, content=body)
    assert response.status_code == 422
    place = "messages[0].content[0].type" if accepted else "messages[0].content[0].input_audio.data"
    assert place in response.json()["error"]


async def test_large_bodies_share_a_budget(model: Model) -> None:
    """What does not fit is refused at once, whatever else it is; short bodies are not counted."""
    settings = ServeSettings(model_name=MODEL, media=MediaSettings(max_in_flight_bytes=4 * MIB))
    question = json.dumps(HELLO).encode()
    going_on = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield question + b" " * (4 * MIB)
        await going_on.wait()
        yield b" "

    async with running(model, settings) as live, httpx2.AsyncClient(base_url=live.url, timeout=60) as client:
        first = asyncio.create_task(client.post(CHAT, content=slowly()))
        await eventually(lambda: live.server.held_bytes.num_held > 2 * MIB)
        refused = await client.post(CHAT, content=question + b" " * (4 * MIB))
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        assert "maxMediaInFlight" in refused.json()["error"]
        assert (await client.post(CHAT, content=question + b" " * (MIB // 2))).status_code == 200
        going_on.set()
        assert (await first).status_code == 200
        assert live.server.held_bytes.num_held == 0


async def test_a_client_that_leaves_gives_back_what_its_body_held(model: Model) -> None:
    async def slowly() -> AsyncIterator[bytes]:
        yield b" " * (4 * MIB)
        await asyncio.Event().wait()

    async with running(model) as live, httpx2.AsyncClient(base_url=live.url, timeout=60) as client:
        going = asyncio.create_task(client.post(CHAT, content=slowly()))
        await eventually(lambda: live.server.held_bytes.num_held > 2 * MIB)
        going.cancel()
        await eventually(lambda: live.server.held_bytes.num_held == 0)
        await eventually(lambda: is_idle(live))


async def test_a_body_is_let_go_before_the_answer(model: Model) -> None:
    """While the answer is generated, which may take minutes, nobody holds what came with the question."""
    question = json.dumps(chat_body(messages=[{"role": "user", "content": "hang after two"}], stream=True)).encode()

    async def pieces() -> AsyncIterator[bytes]:
        yield question
        for _ in range(16):
            yield b" " * MIB

    async with running(model) as live, httpx2.AsyncClient(base_url=live.url, timeout=60) as client:
        assert (await client.post(CHAT, json=HELLO)).status_code == 200  # what is made once is there
        tracemalloc.start()
        try:
            async with client.stream("POST", CHAT, content=pieces()) as response:
                lines = response.aiter_lines()
                assert (await anext(lines)).startswith("data: ")
                held, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak > 16 * MIB
    assert held < 2 * MIB
