"""Who may ask: API keys (H9) and web pages of other origins (H10), over real HTTP."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import openai
import pytest

from mindserve.config.api_keys import ApiKeys
from mindserve.config.settings import Dialect, ServeSettings
from tests.serving import HELLO, MODEL, Live, Model, running

CHAT = "/v1/chat/completions"
KEYS = ("sk-first", "sk-second")
OPEN = ("/health", "/v2/health/live", "/v2/health/ready", "/metrics", "/openapi.yaml", "/openapi.json", "/", "/docs")
PAGE = "https://chat.example.org"


@pytest.fixture(params=Dialect)
async def live(model: Model, request: pytest.FixtureRequest) -> AsyncIterator[Live]:
    settings = ServeSettings(
        model_name=MODEL, dialect=request.param, api_keys=ApiKeys(KEYS), cors_allow_origins=(PAGE,)
    )
    async with running(model, settings) as started:
        yield started


@pytest.fixture
async def client(live: Live) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=live.url) as opened:
        yield opened


async def everything(client: httpx2.AsyncClient, **options: Any) -> list[httpx2.Response]:
    """An answer of every path that wants a key."""
    paths = ("/v1/models", f"/v1/models/{MODEL}")
    return [await client.post(CHAT, json=HELLO, **options), *[await client.get(path, **options) for path in paths]]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
async def test_each_key_opens(client: httpx2.AsyncClient, key: str, scheme: str) -> None:
    for response in await everything(client, headers={"Authorization": f"{scheme} {key}"}):
        assert response.status_code == 200


WRONG: list[tuple[list[tuple[str, str]], str | None]] = [
    ([], None),
    ([("Authorization", "Bearer sk-firs")], "invalid_token"),
    ([("Authorization", "Bearer sk-first2")], "invalid_token"),
    ([("Authorization", "Bearer sk-first sk-second")], "invalid_token"),
    ([("Authorization", "Bearer SK-FIRST")], "invalid_token"),
    ([("Authorization", "Bearer schlüssel".encode().decode("latin-1"))], "invalid_token"),
    ([("Authorization", "sk-first")], "invalid_request"),
    ([("Authorization", "Basic c2stZmlyc3Q6")], "invalid_request"),
    ([("Authorization", "Bearer")], "invalid_request"),
    ([("Authorization", "Bearer sk-first"), ("Authorization", "Bearer sk-no")], "invalid_request"),
    ([("api-key", "sk-first")], None),
]


@pytest.mark.parametrize(("headers", "fault"), WRONG)
async def test_anything_else_is_a_401_in_the_dialect_s_shape(
    live: Live, client: httpx2.AsyncClient, headers: list[Any], fault: str | None
) -> None:
    encoded = [(name, value.encode("latin-1")) for name, value in headers]
    for response in await everything(client, headers=encoded):
        assert response.status_code == 401
        challenge = response.headers["www-authenticate"]
        assert challenge == 'Bearer realm="mindserve"' + (f', error="{fault}"' if fault else "")
        error = response.json()["error"]
        if live.server.settings.dialect is Dialect.VLLM:
            assert response.json()["error_type"] == "Unauthorized"
        else:
            assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")
        assert "sk-" not in response.text


async def test_the_key_is_asked_for_before_anything_else(client: httpx2.AsyncClient) -> None:
    for options in ({"content": b"{"}, {"headers": {"Content-Type": "text/plain"}}, {"content": b""}):
        assert (await client.post(CHAT, **options)).status_code == 401
    assert (await client.post(CHAT, json=HELLO, headers={"X-Mindserve-Dialect": "?"})).status_code == 401


async def test_the_401_is_in_the_dialect_that_the_header_asks_for(client: httpx2.AsyncClient) -> None:
    for dialect in Dialect:
        refused = await client.post(CHAT, json=HELLO, headers={"X-Mindserve-Dialect": dialect})
        assert ("error_type" in refused.json()) == (dialect is Dialect.VLLM)


@pytest.mark.parametrize("path", OPEN)
async def test_probes_and_the_specification_are_open(client: httpx2.AsyncClient, path: str) -> None:
    assert (await client.get(path)).status_code == 200


async def test_no_key_is_logged(client: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture, live: Live) -> None:
    with caplog.at_level(logging.DEBUG):
        await everything(client, headers={"Authorization": "Bearer sk-first"})
        await everything(client, headers={"Authorization": "Bearer sk-wrong"})
    assert "sk-" not in caplog.text
    assert "sk-" not in repr(live.server.settings)


async def test_without_keys_whatever_is_sent_is_ignored(model: Model) -> None:
    async with running(model) as live, httpx2.AsyncClient(base_url=live.url) as client:
        for headers in ({}, {"Authorization": "Bearer any"}, {"Authorization": "nonsense"}):
            assert (await client.post(CHAT, json=HELLO, headers=headers)).status_code == 200


async def test_the_openai_package(live: Live) -> None:
    for key, is_right in (("sk-second", True), ("sk-wrong", False)):
        async with openai.AsyncOpenAI(base_url=f"{live.url}/v1", api_key=key, max_retries=0) as client:
            asked = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "count"}])
            if is_right:
                assert (await asked).choices[0].message.content == "1 2 3 4 5"
            else:
                with pytest.raises(openai.AuthenticationError):
                    await asked


# -------------------------------------------------------------------------------------------------------- CORS


def cors_of(response: httpx2.Response) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name.startswith("access-control-")}


async def test_a_preflight_needs_no_key(client: httpx2.AsyncClient) -> None:
    asked = {
        "Origin": PAGE,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type, x-mindserve-dialect, x-stainless-os",
    }
    for path in (CHAT, "/v1/models"):
        response = await client.options(path, headers=asked)
        assert response.status_code == 204
        allowed = cors_of(response)
        assert allowed["access-control-allow-origin"] == PAGE
        assert "POST" in allowed["access-control-allow-methods"]
        assert "access-control-allow-credentials" not in allowed
        for name in asked["Access-Control-Request-Headers"].split(", "):
            assert (
                name in allowed["access-control-allow-headers"].lower()
                or "*" in allowed["access-control-allow-headers"]
            )
    foreign = await client.options(CHAT, headers={**asked, "Origin": "https://elsewhere.example.org"})
    assert "access-control-allow-origin" not in cors_of(foreign)


@pytest.mark.parametrize("stream", [False, True])
async def test_answers_and_errors_may_be_read_by_the_page(client: httpx2.AsyncClient, *, stream: bool) -> None:
    key = {"Authorization": "Bearer sk-first"}
    for origin, is_allowed in ((PAGE, True), ("https://elsewhere.example.org", False), (PAGE + ".evil.org", False)):
        for headers, body in ((key, {**HELLO, "stream": stream}), (key, {**HELLO, "n": 0}), ({}, HELLO)):
            response = await client.post(CHAT, json=body, headers={**headers, "Origin": origin})
            told = cors_of(response).get("access-control-allow-origin")
            assert told == (PAGE if is_allowed else None), (origin, response.status_code)
            if is_allowed:
                exposed = cors_of(response)["access-control-expose-headers"].lower()
                assert {"requestuuid", "retry-after"} <= set(exposed.replace(" ", "").split(","))
                assert "origin" in response.headers["vary"].lower()
        missing = await client.get("/nowhere", headers={"Origin": origin})
        assert ("access-control-allow-origin" in cors_of(missing)) == is_allowed


async def test_all_origins(model: Model) -> None:
    settings = ServeSettings(model_name=MODEL, cors_allow_origins=("*",))
    async with running(model, settings) as live, httpx2.AsyncClient(base_url=live.url) as client:
        response = await client.post(CHAT, json=HELLO, headers={"Origin": PAGE})
    assert cors_of(response)["access-control-allow-origin"] == "*"


async def test_off_by_default(model: Model) -> None:
    async with running(model) as live, httpx2.AsyncClient(base_url=live.url) as client:
        asked = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}
        for response in (
            await client.options(CHAT, headers=asked),
            await client.post(CHAT, json=HELLO, headers={"Origin": PAGE}),
            await client.get("/v1/models", headers={"Origin": PAGE}),
        ):
            assert cors_of(response) == {}


# ------------------------------------------------------------------------------------------------------ GET /v1/models


async def test_what_front_ends_ask_for_at_set_up(client: httpx2.AsyncClient, live: Live) -> None:
    """The keys that Open WebUI, GPUStack and Dify read of a model, with a key and the base URL joined carelessly."""
    for path in ("/v1/models", "/v1/models/", "//v1/models"):
        listed = (await client.get(f"{live.url}{path}", headers={"Authorization": "Bearer sk-first"})).json()
        assert listed["object"] == "list"
        (model,) = listed["data"]
        assert model == {
            "id": MODEL,
            "object": "model",
            "created": live.server.started_at,
            "owned_by": "mindserve",
            "root": MODEL,
            "parent": None,
            "max_model_len": live.engine.info.max_context,
        }
