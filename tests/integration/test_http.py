"""HTTP around the answers: statuses, headers, paths, limits, connections, and bodies that mean harm."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from mindserve.config.settings import Dialect, ServeSettings
from tests.serving import HELLO, MODEL, Live, Model, chat_body, eventually, is_idle, running

CHAT = "/v1/chat/completions"
START = b'{"model":"m","messages":[{"role":"user","content":"hi"}]'


@pytest.fixture
async def live(model: Model) -> AsyncIterator[Live]:
    async with running(model, ServeSettings(model_name=MODEL, max_request_bytes=100_000)) as started:
        yield started


@pytest.fixture
async def client(live: Live) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=live.url, timeout=30) as opened:
        yield opened


async def test_unknown_path(client: httpx2.AsyncClient) -> None:
    response = await client.get("/v1/nothing")
    assert response.status_code == 404
    assert response.json() == {"error": 'there is nothing at the path "/v1/nothing"', "error_type": "NotFoundError"}


async def test_wrong_method(client: httpx2.AsyncClient) -> None:
    response = await client.get(CHAT)
    assert response.status_code == 405
    assert "POST" in response.headers["allow"]
    assert response.json()["error_type"] == "Method Not Allowed"
    assert (await client.post("/health")).status_code == 405


@pytest.mark.parametrize("path", ["/v1//chat/completions", "/v1/chat/completions/", "/v1/chat//completions//"])
async def test_careless_paths(client: httpx2.AsyncClient, path: str) -> None:
    assert (await client.post(path, json=HELLO)).status_code == 200


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/metrics", "/openapi.yaml"])
async def test_head(client: httpx2.AsyncClient, path: str) -> None:
    response = await client.head(path)
    assert response.status_code == 200
    assert response.content == b""


async def test_options(client: httpx2.AsyncClient) -> None:
    response = await client.options(CHAT)
    assert response.status_code == 204
    assert "POST" in response.headers["allow"]


async def test_every_response_has_an_id(client: httpx2.AsyncClient) -> None:
    responses = [
        await client.get("/health"),
        await client.get("/nothing"),
        await client.post(CHAT, json=HELLO),
        await client.post(CHAT, json=chat_body(stream=True)),
        await client.post(CHAT, content=b"{"),
    ]
    identifiers = [response.headers["RequestUUID"] for response in responses]
    assert len(set(identifiers)) == len(responses)
    own = await client.get("/health", headers={"X-Request-Id": "abc-1"})
    assert own.headers["RequestUUID"] == "abc-1"
    forged = await client.get("/health", headers={"X-Request-Id": 'a b="c"'})
    assert forged.headers["RequestUUID"] != 'a b="c"'


async def test_stream_headers(client: httpx2.AsyncClient) -> None:
    response = await client.post(CHAT, json=chat_body(stream=True))
    assert response.headers["content-type"] == "text/event-stream"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        (None, 200),
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("Application/JSON;charset=UTF-8", 200),
        ("application/json; charset=latin-1", 415),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
    ],
)
async def test_content_type(client: httpx2.AsyncClient, content_type: str | None, status: int) -> None:
    headers = {"content-type": content_type} if content_type else {}
    response = await client.post(CHAT, content=json.dumps(HELLO).encode(), headers=headers)
    assert response.status_code == status
    if status == 415:
        assert response.json()["error_type"] == "Unsupported Media Type"


@pytest.mark.parametrize(
    ("encodings", "status"),
    [(["identity"], 200), (["Identity, identity"], 200), (["gzip"], 415), (["identity", "br"], 415)],
)
@pytest.mark.parametrize("dialect", Dialect)
async def test_content_encoding(model: Model, dialect: Dialect, encodings: list[str], status: int) -> None:
    """What is compressed is refused for that, and not for what its bytes look like."""
    data = json.dumps(HELLO).encode()
    content = data if status == 200 else gzip.compress(data)
    headers = [("content-type", "application/json"), *(("content-encoding", encoding) for encoding in encodings)]
    settings = ServeSettings(model_name=MODEL, dialect=dialect)
    async with running(model, settings) as live, httpx2.AsyncClient(base_url=live.url) as client:
        response = await client.post(CHAT, content=content, headers=headers)
    assert response.status_code == status
    if status == 415:
        error = response.json()
        text = error["error"] if dialect is Dialect.VLLM else error["error"]["message"]
        assert "Content-Encoding must be absent or identity" in text
        assert ",".join(encodings) in text
        assert response.headers["accept-encoding"] == "identity"


async def test_too_large_by_content_length(live: Live) -> None:
    """Refused before the body is sent at all."""
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 100001\r\n\r\n")
    answer = await reader.read()  # until the server closes the connection
    assert answer.startswith(b"HTTP/1.1 413")
    body = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert body["error_type"] == "Request Entity Too Large"
    assert "100000" in body["error"]
    assert "100001" in body["error"]
    writer.close()
    await writer.wait_closed()


async def test_too_large_in_chunks(client: httpx2.AsyncClient, live: Live) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b" " * 50_000

    response = await client.post(CHAT, content=pieces())
    assert response.status_code == 413
    await eventually(lambda: is_idle(live))


async def test_a_connection_is_kept(live: Live) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    for stream in (False, True, False):
        data = json.dumps(chat_body(stream=stream)).encode()
        writer.write(f"POST {CHAT} HTTP/1.1\r\nHost: t\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        if stream:
            await reader.readuntil(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        else:
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
    writer.close()
    await writer.wait_closed()


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty"),
    "blank": (b" \n", "empty"),
    "truncated": (START, "too early"),
    "trailing": (START + b"} x", "trailing"),
    "two values": (START + b"}{}", "trailing"),
    "not an object": (b"[]", "JSON object"),
    "a string": (b'"x"', "JSON object"),
    "null": (b"null", "JSON object"),
    "bad utf-8": (START + b',"x":"\xff"}', "UTF-8"),
    "utf-16": ('{"model":"m"}'.encode("utf-16"), "UTF-8"),
    "byte order mark": (b"\xef\xbb\xbf" + START + b"}", "JSON"),
    "lone surrogate": (START + b',"stop":"\\ud800"}', "surrogate"),
    "nan": (START + b',"temperature":NaN}', "JSON"),
    "infinity": (START + b',"temperature":-Infinity}', "JSON"),
    "number out of range": (START + b',"temperature":1e999}', "temperature"),
    "huge exponent": (START + b',"seed":1e999999999}', "seed"),
    "long integer": (START + b',"seed":' + b"9" * 4000 + b"}", "seed"),
    "endless integer": (START + b',"seed":' + b"9" * 90_000 + b"}", "seed"),
    "deep list": (START + b',"x":' + b"[" * 40_000 + b"]" * 40_000 + b"}", "maxJsonDepth"),
    "deep object": (START + b',"x":' + b'{"a":' * 15_000 + b"1" + b"}" * 15_000 + b"}", "maxJsonDepth"),
    "unclosed depth": (b"[" * 90_000, "maxJsonDepth"),
    "many sequences": (START + b',"n":1000000,"best_of":1000000}', "n must be"),
    "wrong type of a known field": (START + b',"stream":"yes"}', "stream"),
    "model of another type": (b'{"model":5,"messages":[{"role":"user","content":"hi"}]}', "model"),
    "reserved template names": (
        START + b',"chat_template_kwargs":{"tokenize":true,"chat_template":"{{ 1 }}"}}',
        "chat_template_kwargs.tokenize",
    ),
    "media for a text model": (
        b'{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x"},'
        b'{"type":"image_url","image_url":{"url":"http://169.254.169.254/"}}]}]}',
        "messages[0].content[1].type",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_bodies(client: httpx2.AsyncClient, live: Live, name: str) -> None:
    """Each is a refusal that names what is wrong, and leaves nothing behind."""
    body, words = HOSTILE[name]
    response = await client.post(CHAT, content=body)
    assert response.status_code == 422, response.text
    assert words in response.json()["error"]
    assert len(response.content) < 1000
    assert is_idle(live)
    assert (await client.post(CHAT, json=HELLO)).status_code == 200


async def test_unknown_fields_and_last_of_duplicate_keys(client: httpx2.AsyncClient) -> None:
    extra = b',"max_tokens":5,"max_tokens":1,"store":false,"metadata":{"a":[1.5]},"user":null}'
    response = await client.post(CHAT, content=START + extra)
    assert response.json()["usage"]["completion_tokens"] == 1


async def test_too_long_prompt_names_the_limit(model: Model) -> None:
    settings = ServeSettings(model_name=MODEL, max_input_token_len=30, max_seq_len=60)
    long = chat_body(messages=[{"role": "user", "content": "x" * 50}])
    async with running(model, settings) as live, httpx2.AsyncClient(base_url=live.url) as client:
        response = await client.post(CHAT, json=long)
        assert response.status_code == 422
        text = response.json()["error"]
        assert "maximum context length is" in text
        assert "maxInputTokenLen" in text
        assert "30" in text
        assert "have 69 tokens" in text


async def test_openai_dialect_statuses(model: Model) -> None:
    settings = ServeSettings(model_name=MODEL, dialect=Dialect.OPENAI, max_input_token_len=30)
    async with running(model, settings) as live, httpx2.AsyncClient(base_url=live.url) as client:
        wrong: list[tuple[dict[str, Any], int, str | None, str | None]] = [
            ({"temperature": -1}, 400, "temperature", None),
            ({"seed": 2**64}, 400, "seed", None),
            ({"model": "other"}, 404, "model", "model_not_found"),
            (
                {"messages": [{"role": "user", "content": "x" * 50}]},
                400,
                "messages",
                "context_length_exceeded",
            ),
        ]
        for fields, status, param, code in wrong:
            response = await client.post(CHAT, json=chat_body(**fields))
            error = response.json()["error"]
            assert (response.status_code, error["param"], error["code"]) == (status, param, code)
            assert error["type"] == "invalid_request_error"


async def test_models(client: httpx2.AsyncClient) -> None:
    listed = (await client.get("/v1/models")).json()
    assert [model["id"] for model in listed["data"]] == [MODEL]
    assert (await client.get(f"/v1/models/{MODEL}")).json() == listed["data"][0]
    assert listed["data"][0]["max_model_len"] == 1_048_576
    unknown = await client.get("/v1/models/other")
    assert (unknown.status_code, unknown.json()["error_type"]) == (404, "NotFoundError")
    theirs = await client.get("/v1/models/other", headers={"X-Mindserve-Dialect": "openai"})
    error = theirs.json()["error"]
    assert (theirs.status_code, error["param"], error["code"]) == (404, "model", "model_not_found")


async def test_a_model_with_a_slash_in_its_name(model: Model) -> None:
    async with (
        running(model, ServeSettings(model_name="org/name")) as live,
        httpx2.AsyncClient(base_url=live.url) as client,
    ):
        for path in ("org/name", "org%2Fname"):
            assert (await client.get(f"/v1/models/{path}")).json()["id"] == "org/name"
        assert 'no model "org/other"' in (await client.get("/v1/models/org/other")).json()["error"]


async def test_metrics_of_every_outcome(client: httpx2.AsyncClient) -> None:
    await client.post(CHAT, json=HELLO)
    await client.post(CHAT, json=chat_body(stream=True))
    await client.post(CHAT, json=chat_body(n=0))
    await client.post(CHAT, json=chat_body(messages=[{"role": "user", "content": "fail after two"}]))
    response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    lines = response.text.splitlines()
    for expected in (
        'request_received_total{model_name="m"} 4.0',
        'request_success_total{model_name="m"} 2.0',
        'request_failed_total{model_name="m"} 2.0',
        'failed_request_perc{model_name="m"} 0.5',
        'num_requests_running{model_name="m"} 0.0',
        'generation_tokens_total{model_name="m"} 10.0',
        'request_generation_tokens_sum{model_name="m"} 8.0',
        'time_to_first_token_seconds_count{model_name="m"} 3.0',
    ):
        assert expected in lines, expected


async def test_the_contract_is_served(client: httpx2.AsyncClient) -> None:
    as_json = (await client.get("/openapi.json")).json()
    assert as_json["info"]["title"] == "mindserve"
    as_yaml = await client.get("/openapi.yaml")
    assert as_yaml.headers["content-type"] == "application/yaml"
    assert as_yaml.text.startswith("# THE contract")
