"""A client that leaves frees everything its request held, whatever the request was doing."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from mindserve.config.settings import ServeSettings
from tests.serving import HELLO, MODEL, Live, Model, eventually, is_idle, prompt_body, running


async def _send(live: Live, body: dict[str, Any]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A request on a connection of its own, without waiting for the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    data = json.dumps(body).encode()
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
        + f"Content-Length: {len(data)}\r\n\r\n".encode()
        + data
    )
    await writer.drain()
    return reader, writer


async def _leave(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("text", ["hang at once", "hang after two", "endless"])
async def test_leaving_while_it_runs(model: Model, text: str, *, stream: bool) -> None:
    async with running(model) as live:
        reader, writer = await _send(live, prompt_body(text, stream=stream, max_tokens=1_000_000))
        await eventually(lambda: live.engine.stats().num_running == 1)
        if stream:
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        await _leave(writer)
        await eventually(lambda: is_idle(live))
        assert _aborted(live) == 1


async def test_the_opening_chunk_does_not_wait_for_a_token(model: Model) -> None:
    async with running(model) as live:
        reader, writer = await _send(live, prompt_body("hang at once", stream=True))
        async with asyncio.timeout(20):
            while not (line := await reader.readline()).startswith(b"data: "):
                assert line
        assert json.loads(line[6:])["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        await _leave(writer)


@pytest.mark.parametrize("stream", [True, False])
async def test_leaving_while_it_waits_in_the_queue(narrow_model: Model, *, stream: bool) -> None:
    async with running(narrow_model) as live:
        _, first = await _send(live, prompt_body("hang at once"))
        await eventually(lambda: live.engine.stats().num_running == 1)
        _, second = await _send(live, prompt_body("hello", stream=stream))
        await eventually(lambda: live.engine.stats().num_waiting == 1)
        await _leave(second)
        await eventually(lambda: live.engine.stats().num_waiting == 0)
        assert live.engine.stats().num_running == 1
        await _leave(first)
        await eventually(lambda: is_idle(live))


async def test_leaving_while_the_prompt_is_made(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    making, go_on = threading.Event(), threading.Event()

    def slow_render(*args: Any, **kwargs: Any) -> list[int]:
        making.set()
        go_on.wait(20)
        return [1]

    monkeypatch.setattr(model.tokenizer, "render_chat", slow_render)
    async with running(model) as live:
        _, writer = await _send(live, HELLO)
        await asyncio.to_thread(making.wait, 20)
        await _leave(writer)
        await eventually(lambda: is_idle(live))
        go_on.set()
        assert _aborted(live) == 1


async def test_leaving_in_the_middle_of_the_body(model: Model) -> None:
    async with running(model) as live:
        _, writer = await asyncio.open_connection("127.0.0.1", live.port)
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n\r\n{")
        await writer.drain()
        await eventually(lambda: live.server.lifecycle.num_in_flight == 1)
        await _leave(writer)
        await eventually(lambda: is_idle(live))
        assert _aborted(live) == 1


async def test_a_slow_reader_is_not_a_hung_engine(model: Model) -> None:
    """Back pressure stops the stream, and the request lives on."""
    async with running(model) as live:
        reader, writer = await _send(live, prompt_body("endless", stream=True, max_tokens=20_000))
        await eventually(lambda: live.engine.stats().num_running == 1)
        text = b""
        while not text.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"):
            piece = await reader.read(65536)
            assert piece
            text = text[-64:] + piece
        await _leave(writer)
        await eventually(lambda: is_idle(live))
        assert _aborted(live) == 0


async def test_a_client_that_never_reads_is_let_go(model: Model) -> None:
    """Its time runs out while the stream is stuck in the socket: no error can be told, and none is waited for."""
    async with running(model, ServeSettings(model_name=MODEL, e2e_timeout_s=0.5), last_words_s=0.1) as live:
        _, writer = await _send(live, prompt_body("endless", stream=True, max_tokens=10_000_000))
        await eventually(lambda: live.engine.stats().num_running == 1)
        await eventually(lambda: is_idle(live))
        await _leave(writer)


def _aborted(live: Live) -> float:
    value = live.server.metrics.registry.get_sample_value("request_aborted_total", {"model_name": "m"})
    assert value is not None
    return value
