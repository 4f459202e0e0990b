"""The helpers of the openai package in both dialects: ``parse``, ``.stream()`` and usage in streams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pydantic
import pytest

from mindserve.config.settings import Dialect, ServeSettings
from tests.serving import MODEL, Live, running, scripted_model


class Weather(pydantic.BaseModel):
    """What the model is asked for."""

    city: str
    degrees: int


JSON = '{"city": "Oslo", "degrees": 21}'
CALL = f'<tool_call>{{"name": "Weather", "arguments": {JSON}}}</tool_call>'
REPLIES: list[dict[str, Any]] = [
    {"contains": "call", "pieces": [CALL, "\n", CALL]},
    {"contains": "cut", "pieces": list(JSON[:9]), "finish": "length"},
    {"contains": "json", "pieces": list(JSON)},
    {"default": True, "pieces": ["Good", " day"], "others": [{"pieces": ["Hi"]}], "logprobs": -0.5},
]


@pytest.fixture(params=Dialect)
async def live(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Live]:
    settings = ServeSettings(model_name=MODEL, dialect=request.param)
    async with running(scripted_model(tmp_path, REPLIES), settings) as started:
        yield started


@pytest.fixture
async def client(live: Live) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{live.url}/v1", api_key="any", max_retries=0) as opened:
        yield opened


def asking(text: str) -> Any:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}]}


async def test_parse(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.parse(**asking("json"), response_format=Weather)
    message = answer.choices[0].message
    assert message.parsed == Weather(city="Oslo", degrees=21)
    assert message.refusal is None


async def test_parse_of_calls(client: openai.AsyncOpenAI) -> None:
    tools = [openai.pydantic_function_tool(Weather)]
    answer = await client.chat.completions.parse(**asking("call"), tools=tools)
    calls = answer.choices[0].message.tool_calls
    assert calls is not None
    assert [call.function.parsed_arguments for call in calls] == [Weather(city="Oslo", degrees=21)] * 2


async def test_parse_of_one_call(client: openai.AsyncOpenAI, live: Live) -> None:
    tools = [openai.pydantic_function_tool(Weather)]
    answer = await client.chat.completions.parse(**asking("call"), tools=tools, parallel_tool_calls=False)
    calls = answer.choices[0].message.tool_calls
    assert calls is not None
    assert len(calls) == (1 if live.server.settings.dialect is Dialect.OPENAI else 2)  # there an unknown field


async def test_parse_of_what_was_cut(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.LengthFinishReasonError):
        await client.chat.completions.parse(**asking("cut"), response_format=Weather)


async def test_stream_helper_with_a_schema(client: openai.AsyncOpenAI) -> None:
    async with client.chat.completions.stream(**asking("json"), response_format=Weather) as stream:
        kinds = {event.type async for event in stream}
        final = await stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert final.choices[0].message.parsed == Weather(city="Oslo", degrees=21)


async def test_stream_helper_with_calls(client: openai.AsyncOpenAI) -> None:
    tools = [openai.pydantic_function_tool(Weather)]
    async with client.chat.completions.stream(**asking("call"), tools=tools) as stream:
        events = [event async for event in stream]
        final = await stream.get_final_completion()
    done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert [event.parsed_arguments for event in done] == [Weather(city="Oslo", degrees=21)] * 2
    assert final.choices[0].finish_reason == "tool_calls"


async def test_the_helper_joins_roles_that_are_repeated(client: openai.AsyncOpenAI, live: Live) -> None:
    """Which is why OpenAI sends one (D1); the document's dialect cannot help it."""
    async with client.chat.completions.stream(**asking("hello")) as stream:
        final = await stream.get_final_completion()
    role = final.choices[0].message.role
    assert (role == "assistant") == (live.server.settings.dialect is Dialect.OPENAI)


async def test_usage_of_a_stream(client: openai.AsyncOpenAI, live: Live) -> None:
    stream = await client.chat.completions.create(
        **asking("hello"), stream=True, n=2, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    usages = [chunk.usage for chunk in chunks if chunk.usage is not None]
    if live.server.settings.dialect is Dialect.OPENAI:
        assert [usage.total_tokens - usage.prompt_tokens for usage in usages] == [3 + 2]
        assert chunks[-1].choices == []
    else:
        assert sorted(usage.total_tokens - usage.prompt_tokens for usage in usages) == [2, 3]


async def test_the_other_dialect_by_a_header(client: openai.AsyncOpenAI) -> None:
    for dialect in Dialect:
        other = client.with_options(default_headers={"X-Mindserve-Dialect": dialect})
        answer = await other.chat.completions.create(**asking("hello"))
        assert ("prefill_time" in (answer.model_extra or {})) == (dialect is Dialect.VLLM)


async def test_a_client_s_further_fields(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        **asking("hello"),
        logit_bias={"65": -100},
        metadata={"a": "b"},
        store=False,
        user="u",
        parallel_tool_calls=True,
        max_completion_tokens=2,
        logprobs=True,
    )
    assert answer.choices[0].message.content == "Good day"
    assert answer.choices[0].logprobs is not None
