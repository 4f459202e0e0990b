"""What goes over the wire and how often, with servers that answer as the test says: retries, limits, broken answers."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import Any

import httpx2
import pytest

from mindserve_client import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    EventTooLarge,
    InvalidRequest,
    InvalidResponse,
    MindserveError,
    StreamFailed,
    StreamIncomplete,
    TooManyRequests,
    Unavailable,
)
from mindserve_client import retry as retry_module
from tests.mindserve_client.asking import KINDS, asking
from tests.mindserve_client.wire import CHUNK, COMPLETION, GOOD, HANG_UP, answer, events, wire
from tests.serving import HELLO

AGAIN = "Retry-After: 0"
BUSY = answer(503, '{"error": "full", "error_type": "Service Unavailable"}', AGAIN)
LIMITED = answer(429, '{"error": {"message": "full", "type": "rate_limit_error"}}', AGAIN)
HI = CHUNK.model_dump_json(exclude_unset=True)
CUT = events(HI).replace(b"Connection: close", b"Content-Length: 1000")

pytestmark = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_module, "backoff_s", lambda attempt, jitter: 0.0)


@pytest.mark.parametrize("fault", [HANG_UP, BUSY, LIMITED, answer(503, "")])
async def test_another_attempt_may_help(kind: str, fault: bytes) -> None:
    with wire(fault, fault, GOOD) as server:
        async with asking(kind, server.url, max_retries=2) as client:
            assert (await client.whole()).model_dump() == COMPLETION.model_dump()
    assert len(server.heard) == 3
    assert len(set(server.heard)) == 1


async def test_a_stream_is_begun_again_before_its_first_byte_only(kind: str) -> None:
    with wire(HANG_UP, BUSY, events(HI, "[DONE]")) as server:
        async with asking(kind, server.url) as client:
            chunks: list[Any] = []
            await client.chunks(chunks)
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["hi"]
    assert len(server.heard) == 3


@pytest.mark.parametrize(
    ("said", "error"),
    [(HANG_UP, APIConnectionError), (BUSY, Unavailable), (LIMITED, TooManyRequests)],
)
@pytest.mark.parametrize("max_retries", [0, 1])
async def test_attempts_are_counted(kind: str, said: bytes, error: type[Exception], max_retries: int) -> None:
    with wire(said, said, GOOD) as server:
        async with asking(kind, server.url, max_retries=max_retries) as client:
            with pytest.raises(error):
                await client.whole()
    assert len(server.heard) == max_retries + 1


@pytest.mark.parametrize("status", [400, 401, 404, 422, 500, 302])
async def test_refusals_are_final(kind: str, status: int) -> None:
    with wire(answer(status, '{"error": "no", "error_type": "t"}', AGAIN), GOOD) as server:
        async with asking(kind, server.url) as client:
            with pytest.raises(APIStatusError, match=f"^{status}: no$") as told:
                await client.whole()
    assert len(server.heard) == 1
    assert told.value.headers["retry-after"] == "0"


async def test_a_server_that_asks_for_too_much_patience_is_not_waited_for(kind: str) -> None:
    with wire(answer(503, "{}", "Retry-After: 3600"), GOOD) as server:
        async with asking(kind, server.url) as client:
            with pytest.raises(Unavailable):
                await client.whole()
    assert len(server.heard) == 1


async def test_the_server_says_how_long_to_wait(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def pause(seconds: float) -> None:
        waits.append(seconds)

    with wire(BUSY.replace(b": 0", b": 7"), LIMITED.replace(b": 0", b": 0.5"), HANG_UP, GOOD) as server:
        async with asking(kind, server.url, max_retries=3) as client:
            monkeypatch.setattr(time, "sleep", waits.append)
            monkeypatch.setattr(asyncio, "sleep", pause)
            await client.whole()
    assert waits == [7.0, 0.5, 0.0]


async def test_nothing_is_sent_again_after_the_first_byte(kind: str) -> None:
    with wire(GOOD[:-5], CUT, GOOD) as server:
        async with asking(kind, server.url) as client:
            with pytest.raises(APIConnectionError):
                await client.whole()
            chunks: list[Any] = []
            with pytest.raises(APIConnectionError):
                await client.chunks(chunks)
    assert len(chunks) == 1
    assert len(server.heard) == 2


async def test_a_server_that_is_not_there(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []

    def waited(attempt: int, jitter: float) -> float:
        waits.append(attempt)
        return 0.0

    monkeypatch.setattr(retry_module, "backoff_s", waited)
    with wire() as server:
        pass
    async with asking(kind, server.url, max_retries=3) as client:
        with pytest.raises(APIConnectionError, match="ConnectError"):
            await client.whole()
    assert waits == [0, 1, 2]


@pytest.mark.parametrize("call", ["client", "call"])
async def test_time_limits(kind: str, call: str) -> None:
    limits = httpx2.Timeout(20, read=0.05)
    with wire(None) as server:
        async with asking(kind, server.url, timeout=limits if call == "client" else 20.0) as client:
            with pytest.raises(APITimeoutError, match="ReadTimeout"):
                await client.whole(**({} if call == "client" else {"timeout": limits}))


async def test_a_stream_that_stalls_is_not_begun_again(kind: str) -> None:
    stalled = events(HI).replace(b"Connection: close", b"Content-Length: 1000")
    with wire(stalled, events(HI, "[DONE]"), stays=True) as server:
        async with asking(kind, server.url, timeout=httpx2.Timeout(20, read=0.5)) as client:
            chunks: list[Any] = []
            with pytest.raises(APITimeoutError, match="ReadTimeout"):
                await client.chunks(chunks)
    assert len(chunks) == len(server.heard) == 1


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("media_type", ["application/json", "text/event-stream"])
async def test_an_answer_that_cannot_be_decompressed(kind: str, status: int, media_type: str) -> None:
    with wire(answer(status, "no gzip", "Content-Encoding: gzip", kind=media_type), GOOD) as server:
        async with asking(kind, server.url) as client:
            with pytest.raises(InvalidResponse, match="not encoded as its Content-Encoding says"):
                await (client.whole() if "json" in media_type else client.chunks([]))
    assert len(server.heard) == 1


@pytest.mark.parametrize("headers", [{"X-A": "1\r\nX-B: 2"}, {"X A": "1"}, {"": "1"}, {"X-A": "é"}])
async def test_what_no_header_can_be_is_not_sent(kind: str, headers: dict[str, str]) -> None:
    with wire(GOOD) as server:
        async with asking(kind, server.url) as client:
            with pytest.raises(InvalidRequest, match=r"^extra_headers: ") as refused:
                await client.whole(extra_headers=headers)
    assert refused.value.field == "extra_headers"
    assert server.heard == []


@pytest.mark.parametrize(
    ("said", "error", "says"),
    [
        (events(HI), StreamIncomplete, "without its end mark"),
        (events(), StreamIncomplete, "without its end mark"),
        (events(HI, '{"error": "e", "error_type": "Incomplete Generation"}'), StreamFailed, "^e$"),
        (events(HI, '{"error": {"message": "e", "type": "server_error"}}', "[DONE]"), StreamFailed, "^e$"),
        (events(HI, "{}"), InvalidResponse, "is no ChatCompletionChunk: id: Field required"),
        (events(HI, "x" * 3000, "[DONE]"), EventTooLarge, r"max_event_bytes \(2000\)"),
        (events(HI, kind="text/html"), InvalidResponse, "what came is text/html"),
        (GOOD, InvalidResponse, "what came is application/json"),
    ],
)
async def test_streams_that_are_none(kind: str, said: bytes, error: type[MindserveError], says: str) -> None:
    with wire(said, GOOD) as server:
        async with asking(kind, server.url, max_event_bytes=2000) as client:
            chunks: list[Any] = []
            with pytest.raises(error, match=says):
                await client.chunks(chunks)
    assert len(chunks) == (HI.encode() in said and b"event-stream" in said)
    assert len(server.heard) == 1


async def test_nothing_follows_the_end_mark(kind: str) -> None:
    with wire(events(HI, "[DONE]", HI, "odd")) as server:
        async with asking(kind, server.url) as client:
            chunks: list[Any] = []
            await client.chunks(chunks)
    assert len(chunks) == 1


async def test_an_errors_body_is_read_up_to_a_bound(kind: str) -> None:
    endless = b"HTTP/1.1 500 X\r\nContent-Length: 999999999\r\n\r\n" + b"x" * 3_000_000
    with wire(endless) as server:
        async with asking(kind, server.url) as client:
            with pytest.raises(APIStatusError, match=r"^500: x{500}$"):
                await client.whole()


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
@pytest.mark.parametrize("prefix", ["", "/proxy/of/v1x"])
async def test_base_urls(kind: str, path: str, prefix: str) -> None:
    with wire(GOOD) as server:
        async with asking(kind, f"{server.url}{prefix}{path}") as client:
            await client.whole()
    assert server.heard[0].startswith(f"POST {prefix}/v1/chat/completions HTTP/1.1\r\n")


async def test_what_is_sent(kind: str) -> None:
    options: dict[str, Any] = {"api_key": "sk-1", "dialect": "openai", "headers": {"X-One": "1", "X-Two": "2"}}
    body = COMPLETION.model_dump_json(exclude_unset=True).replace('"tool_calls":[]', '"refusal":null')
    with wire(answer(200, body)) as server:
        async with asking(kind, server.url, **options) as client:
            await client.whole(extra_headers={"x-two": "3"}, extra_body={"odd": [1]}, seed=2**64 - 1)
    head, _, body = server.heard[0].partition("\r\n\r\n")
    headers = dict(re.findall(r"^(\S+): (.*)$", head.replace("\r", "").lower(), flags=re.MULTILINE))
    assert json.loads(body) == {**HELLO, "seed": 2**64 - 1, "odd": [1]}
    assert headers["authorization"] == "bearer sk-1"
    assert headers["x-mindserve-dialect"] == "openai"
    assert (headers["x-one"], headers["x-two"]) == ("1", "3")
    assert headers["content-type"] == "application/json"


async def test_without_a_key_none_is_sent(kind: str) -> None:
    with wire(GOOD) as server:
        async with asking(kind, server.url) as client:
            await client.whole()
    assert "authorization" not in server.heard[0].lower()
