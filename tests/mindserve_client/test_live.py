"""Both clients against the real server over sockets, in both dialects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mindserve.config.api_keys import ApiKeys
from mindserve.config.settings import Dialect, ServeSettings
from mindserve_client import (
    AsyncClient,
    BadRequest,
    Client,
    GenerationFailed,
    NotFound,
    StreamFailed,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    ValidationFailed,
    image,
    models,
    openai_models,
    text,
)
from tests.mindserve_client.asking import KINDS, asking
from tests.serving import MODEL, Live, Model, eventually, is_idle, prompt_body, running, scripted_model

REPLIES: list[dict[str, Any]] = [
    {"contains": "fail at once", "pieces": ["never"], "fail_after": 0},
    {"contains": "fail after two", "pieces": ["one", " two", " three"], "fail_after": 2},
    {"contains": "endless", "pieces": ["a", "b"], "repeat": True},
    {"default": True, "pieces": ["1", " 2", " 3", " 日本", "語"]},
]
TEXT = "1 2 3 日本語"
DIALECTS = ("vllm", "openai")

pytestmark = [pytest.mark.parametrize("kind", KINDS), pytest.mark.parametrize("dialect", DIALECTS)]


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return scripted_model(tmp_path, REPLIES)


@pytest.fixture(params=Dialect)
async def live(model: Model, request: pytest.FixtureRequest) -> AsyncIterator[Live]:
    """A server of either dialect: what the client says is what counts."""
    async with running(model, ServeSettings(model_name=MODEL, dialect=request.param)) as started:
        yield started


def completion_of(dialect: str) -> type[Any]:
    return models.ChatCompletion if dialect == "vllm" else openai_models.ChatCompletion


async def test_whole_answers(live: Live, kind: str, dialect: str) -> None:
    async with asking(kind, live.url, dialect=dialect) as client:
        answer = await client.whole(logprobs=True, top_logprobs=2, seed=1)
    assert type(answer) is completion_of(dialect)
    assert answer.choices[0].message.content == TEXT
    assert len(answer.choices[0].logprobs.content[0].top_logprobs) == 2
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    if dialect == "vllm":
        assert len(answer.decode_time_arr) == answer.usage.completion_tokens - 1
        assert len(answer.usage.queue_wait_time) == len(answer.usage.batch_size) == answer.usage.completion_tokens
        assert answer.prefill_time >= 0
    assert _extras(answer) == []


def _extras(value: Any) -> list[str]:
    """Fields, at any depth, that the models do not know."""
    if isinstance(value, list):
        return [extra for item in value for extra in _extras(item)]
    if not hasattr(value, "model_extra"):
        return []
    own = list(value.model_extra or {})
    return own + [extra for name in type(value).model_fields for extra in _extras(getattr(value, name))]


async def test_streams(live: Live, kind: str, dialect: str) -> None:
    chunks: list[Any] = []
    async with asking(kind, live.url, dialect=dialect) as client:
        await client.chunks(chunks, stream_options={"include_usage": True}, logprobs=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == TEXT
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage.completion_tokens == 6
    assert _extras(chunks) == []
    await eventually(lambda: is_idle(live))


async def test_leaving_a_stream_stops_the_server(live: Live, kind: str, dialect: str) -> None:
    async with asking(kind, live.url, dialect=dialect) as client:
        params = {**prompt_body("endless"), "max_tokens": 1_000_000}
        await client.first_chunk(**params)
        await eventually(lambda: is_idle(live))
        unread = await client.no_chunk(**params)
        assert unread.response.is_closed
        await eventually(lambda: is_idle(live))


async def test_an_error_of_the_readers_closes_the_stream(live: Live, kind: str, dialect: str) -> None:
    class Own(list[Any]):
        def append(self, chunk: Any) -> None:
            raise LookupError

    client: Any
    params: dict[str, Any] = {**prompt_body("endless"), "max_tokens": 1_000_000}
    async with asking(kind, live.url, dialect=dialect) as client:
        with pytest.raises(LookupError):
            await client.chunks(Own(), **params)
    await eventually(lambda: is_idle(live))


async def test_refusals(live: Live, kind: str, dialect: str) -> None:
    async with asking(kind, live.url, dialect=dialect) as client:
        refused: type[Exception] = ValidationFailed if dialect == "vllm" else BadRequest
        with pytest.raises(refused, match="must not be empty") as told:
            await client.whole(messages=[{"role": "user", "content": ""}])
        assert told.value.param == (None if dialect == "vllm" else "messages[0].content")  # type: ignore[attr-defined]
        with pytest.raises(ValidationFailed if dialect == "vllm" else NotFound, match="served models"):
            await client.whole(model="nobody")
        with pytest.raises(refused, match=r"content\[1\]"):
            await client.whole(messages=[{"role": "user", "content": [text("a"), image("x.png")]}])


async def test_failures(live: Live, kind: str, dialect: str) -> None:
    async with asking(kind, live.url, dialect=dialect) as client:
        with pytest.raises(GenerationFailed):
            await client.whole(**prompt_body("fail at once"))
        chunks: list[Any] = []
        with pytest.raises(StreamFailed) as told:
            await client.chunks(chunks, **prompt_body("fail after two"))
    assert told.value.type == ("Incomplete Generation" if dialect == "vllm" else "server_error")
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "one two"


async def test_models(live: Live, kind: str, dialect: str) -> None:
    async with asking(kind, live.url, dialect=dialect) as client:
        (served,) = (await client.models()).data
        assert served.id == MODEL
        assert await client.model(MODEL) == served
        with pytest.raises(NotFound):
            await client.model("a/b?c")


async def test_keys(model: Model, kind: str, dialect: str) -> None:
    async with running(model, ServeSettings(model_name=MODEL, api_keys=ApiKeys(("sk-1",)))) as live:
        async with asking(kind, live.url, dialect=dialect, api_key="sk-1") as client:
            assert (await client.whole()).choices[0].message.content == TEXT
        async with asking(kind, live.url, dialect=dialect) as client:
            with pytest.raises(Unauthorized) as told:
                await client.whole()
        assert told.value.type == ("Unauthorized" if dialect == "vllm" else "invalid_request_error")


async def test_a_full_queue_says_when_to_come_back(tmp_path: Path, kind: str, dialect: str) -> None:
    narrow = scripted_model(tmp_path, REPLIES, max_batch_size=1, max_waiting=0)
    async with running(narrow) as live, AsyncClient(live.url) as other:
        stream = await other.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "endless"}], max_tokens=1_000_000, stream=True
        )
        async with stream, asking(kind, live.url, dialect=dialect, max_retries=0) as client:
            await anext(stream)
            with pytest.raises(Unavailable if dialect == "vllm" else TooManyRequests) as told:
                await client.whole()
            assert int(told.value.headers["retry-after"]) >= 1


def test_options_that_make_no_sense(kind: str, dialect: Any) -> None:
    made: Any = Client if kind == "sync" else AsyncClient
    for options, says in (
        ({"base_url": "localhost:1025"}, "base_url must be like http"),
        ({"base_url": "http://h?a=1"}, "no query"),
        ({"base_url": "http://h", "max_retries": -1}, "max_retries must be at least 0, got -1"),
        ({"base_url": "http://h", "max_event_bytes": 0}, "max_event_bytes must be at least 1, got 0"),
        ({"base_url": "http://h", "api_key": ""}, "api_key must be made of visible ASCII characters without blanks$"),
        ({"base_url": "http://h", "api_key": "two words"}, "api_key must be made of"),
        ({"base_url": "http://h", "api_key": "schlüssel"}, "api_key must be made of"),
        ({"base_url": "http://h", "headers": {"X-A": "1\r\nX-B: 2"}}, "^headers: 'X-A' or its value cannot be sent"),
        ({"base_url": "http://h", "headers": {"X A": "1"}}, "^headers: 'X A' or its value cannot be sent"),
        ({"base_url": "http://h", "dialect": "mindie"}, "dialect must be 'vllm' or 'openai', got 'mindie'"),
    ):
        with pytest.raises(ValueError, match=says):
            made(**{"dialect": dialect, **options})


def test_a_key_is_never_shown(kind: str, dialect: Any) -> None:
    with Client("http://h", api_key="sk-secret", dialect=dialect) as client:
        assert "sk-secret" not in repr(client.options)
