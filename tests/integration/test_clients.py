"""Clients that people use: the openai package, curl, httpx2, and other people's parsers of event streams."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from typing import Any

import httpx
import httpx2
import openai
import pytest
from httpx_sse import EventSource

from mindserve.config.settings import Dialect, ServeSettings
from tests.serving import HELLO, MODEL, Live, Model, chat_body, running

COUNT: list[Any] = [{"role": "user", "content": "count"}]


@pytest.fixture(params=[Dialect.VLLM, Dialect.OPENAI])
async def live(model: Model, request: pytest.FixtureRequest) -> AsyncIterator[Live]:
    async with running(model, ServeSettings(model_name=MODEL, dialect=request.param)) as started:
        yield started


@pytest.fixture
async def client(live: Live) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{live.url}/v1", api_key="any", max_retries=0) as opened:
        yield opened


async def test_openai_whole_answer(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model=MODEL,
        messages=COUNT,
        temperature=0.5,
        extra_body={"top_k": 5, "repetition_penalty": 1.1, "ignore_eos": False, "chat_template_kwargs": {"a": 1}},
    )
    assert answer.choices[0].message.content == "1 2 3 4 5"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 6


async def test_openai_stream(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(model=MODEL, messages=COUNT, stream=True)
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "1 2 3 4 5"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert len({chunk.id for chunk in chunks}) == 1


async def test_openai_stream_helper(client: openai.AsyncOpenAI) -> None:
    async with client.chat.completions.stream(model=MODEL, messages=COUNT) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].message.content == "1 2 3 4 5"


async def test_each_token_is_sent_at_once(client: openai.AsyncOpenAI) -> None:
    """The engine hangs after two tokens: the client has both, one by one."""
    messages: list[Any] = [{"role": "user", "content": "hang after two"}]
    texts = []
    async with await client.chat.completions.create(model=MODEL, messages=messages, stream=True) as stream:
        async for chunk in stream:
            texts.append(chunk.choices[0].delta.content)
            if texts[-1] == " two":
                break
    assert texts == ["", "one", " two"]


async def test_openai_models(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == [MODEL]
    assert (await client.models.retrieve(MODEL)).id == MODEL
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("other")


async def test_openai_errors(client: openai.AsyncOpenAI, live: Live) -> None:
    with pytest.raises(openai.APIStatusError) as refused:
        await client.chat.completions.create(model=MODEL, messages=COUNT, temperature=-1)
    if live.server.settings.dialect is Dialect.OPENAI:
        assert isinstance(refused.value, openai.BadRequestError)
        assert refused.value.param == "temperature"
    else:
        assert isinstance(refused.value, openai.UnprocessableEntityError)
    assert "temperature" in refused.value.response.text


async def test_openai_sees_a_broken_stream(client: openai.AsyncOpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "fail after two"}]
    stream = await client.chat.completions.create(model=MODEL, messages=messages, stream=True)
    with pytest.raises(openai.APIError):
        _ = [chunk async for chunk in stream]


async def test_another_parser_of_event_streams(live: Live) -> None:
    async with (
        httpx.AsyncClient(base_url=live.url) as client,
        client.stream("POST", "/v1/chat/completions", json=chat_body(stream=True)) as response,
    ):
        events = [event async for event in EventSource(response).aiter_sse()]
    assert events[-1].data == "[DONE]"
    assert {event.event for event in events} == {"message"}
    text = "".join(json.loads(event.data)["choices"][0]["delta"].get("content", "") for event in events[:-1])
    assert text == "Hello! How are you?"


async def test_heartbeats_are_comments(model: Model) -> None:
    settings = ServeSettings(model_name=MODEL, heartbeat_s=0.05)
    body = chat_body(messages=[{"role": "user", "content": "hang after two"}], stream=True)
    async with (
        running(model, settings) as live,
        httpx2.AsyncClient(base_url=live.url) as client,
        client.stream("POST", "/v1/chat/completions", json=body) as response,
    ):
        lines = response.aiter_lines()
        seen = [line async for line in _until(lines, ": keep-alive")]
    assert seen[-1] == ": keep-alive"
    assert all(line.startswith(("data: ", ": keep-alive")) or not line for line in seen)


async def _until(lines: AsyncIterator[str], last: str) -> AsyncIterator[str]:
    async for line in lines:
        yield line
        if line == last:
            return


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("stream", [True, False])
async def test_curl(live: Live, *, stream: bool) -> None:
    command = ["curl", "-sS", "-N", f"{live.url}/v1/chat/completions", "-H", "Content-Type: application/json", "-d"]
    process = await asyncio.create_subprocess_exec(
        *command, json.dumps({**HELLO, "stream": stream}), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    if stream:
        assert output.startswith(b"data: {")
        assert output.endswith(b"data: [DONE]\n\n")
    else:
        assert json.loads(output)["choices"][0]["message"]["content"] == "Hello! How are you?"
