"""Failures are never successes: errors before headers, error events after them, and no end mark behind those."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mindserve.config.settings import Dialect, ServeSettings
from mindserve_engine.interface import EngineError
from tests.serving import MODEL, Model, eventually, is_idle, post_chat, prompt_body, running, scripted_model


def _events(response: httpx2.Response) -> list[dict[str, Any]]:
    assert "[DONE]" not in response.text
    events = response.text.removesuffix("\n\n").split("\n\n")
    return [json.loads(event.removeprefix("data: ")) for event in events]


BROKEN = ["fail at once", "fail after two", "sequence fails", "crash after two"]


@pytest.mark.parametrize("text", BROKEN)
async def test_an_engine_failure_is_a_500(model: Model, text: str) -> None:
    async with running(model) as live:
        response = await post_chat(live, prompt_body(text))
        assert response.status_code == 500
        assert response.json()["error_type"] == "Incomplete Generation"
        assert is_idle(live)


@pytest.mark.parametrize("text", BROKEN)
async def test_in_a_stream_it_is_the_last_event(model: Model, text: str) -> None:
    async with running(model) as live:
        response = await post_chat(live, prompt_body(text, stream=True))
        *chunks, last = _events(response)
        assert response.status_code == 200
        assert last.keys() == {"error", "error_type"}
        assert last["error_type"] == "Incomplete Generation"
        assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
        assert all("usage" not in chunk for chunk in chunks)
        await eventually(lambda: is_idle(live))


async def test_the_openai_dialect_has_its_own_shapes(model: Model) -> None:
    async with running(model, ServeSettings(model_name=MODEL, dialect=Dialect.OPENAI)) as live:
        whole = await post_chat(live, prompt_body("fail after two"))
        assert whole.status_code == 500
        assert whole.json()["error"]["type"] == "server_error"
        *_, last = _events(await post_chat(live, prompt_body("fail after two", stream=True)))
        assert last["error"].keys() == {"message", "type", "param", "code"}


async def test_a_crash_is_survived(model: Model) -> None:
    async with running(model) as live:
        assert (await post_chat(live, prompt_body("crash after two"))).status_code == 500
        await eventually(lambda: live.engine.health().state == "ready")
        assert (await post_chat(live, prompt_body("count"))).json()["choices"][0]["message"]["content"] == "1 2 3 4 5"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_bug_is_told_without_its_text(model: Model, monkeypatch: pytest.MonkeyPatch, *, stream: bool) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr("mindserve.api.assemble.Answer.feed", broken)
    async with running(model) as live:
        response = await post_chat(live, prompt_body("count", stream=stream))
        assert "secret" not in response.text
        error = _events(response)[-1] if stream else response.json()
        assert error["error_type"] == "Incomplete Generation"
        assert response.status_code == (200 if stream else 500)
        await eventually(lambda: is_idle(live))


@pytest.mark.parametrize(("setting", "text"), [("tokenTimeout", "hang after two"), ("e2eTimeout", "hang at once")])
@pytest.mark.parametrize("stream", [True, False])
async def test_time_limits(model: Model, setting: str, text: str, *, stream: bool) -> None:
    short = {"tokenTimeout": "token_timeout_s", "e2eTimeout": "e2e_timeout_s"}[setting]
    async with running(model, ServeSettings(model_name=MODEL, **{short: 0.2})) as live:
        response = await post_chat(live, prompt_body(text, stream=stream))
        error = _events(response)[-1] if stream else response.json()
        assert setting in error["error"]
        assert error["error_type"] == "Incomplete Generation"
        assert response.status_code == (200 if stream else 500)
        await eventually(lambda: is_idle(live))


async def test_the_time_limit_covers_the_queue(narrow_model: Model) -> None:
    async with running(narrow_model, ServeSettings(model_name=MODEL, e2e_timeout_s=0.3)) as live:
        first, second = await asyncio.gather(
            post_chat(live, prompt_body("hang at once")), post_chat(live, prompt_body("count"))
        )
        assert {first.status_code, second.status_code} <= {500, 200}
        assert "e2eTimeout" in first.json()["error"]
        await eventually(lambda: is_idle(live))


async def test_a_full_queue_refuses(narrow_model: Model) -> None:
    async with running(narrow_model) as live:
        waiting = [asyncio.create_task(post_chat(live, prompt_body("hang at once")))]
        await eventually(lambda: live.engine.stats().num_running == 1)
        waiting.append(asyncio.create_task(post_chat(live, prompt_body("count"))))
        await eventually(lambda: live.engine.stats().num_waiting == 1)
        for stream in (True, False):
            response = await post_chat(live, prompt_body("count", stream=stream))
            assert response.status_code == 503
            assert int(response.headers["retry-after"]) >= 1
            assert response.json()["error_type"] == "Service Unavailable"
        live.server.lifecycle.give_up_all()
        await asyncio.gather(*waiting)
        await eventually(lambda: is_idle(live))


async def test_a_full_queue_in_the_openai_dialect(narrow_model: Model) -> None:
    async with running(narrow_model, ServeSettings(model_name=MODEL, dialect=Dialect.OPENAI)) as live:
        waiting = [asyncio.create_task(post_chat(live, prompt_body("hang at once"))) for _ in range(2)]
        await eventually(lambda: live.engine.stats().num_waiting == 1)
        response = await post_chat(live, prompt_body("count"))
        assert response.status_code == 429
        assert response.json()["error"]["type"] == "rate_limit_error"
        assert int(response.headers["retry-after"]) >= 1
        live.server.lifecycle.give_up_all()
        await asyncio.gather(*waiting)


async def test_while_the_model_loads(tmp_path: Path) -> None:
    slow = scripted_model(tmp_path, {"load": {"delay_ms": 60_000}, "replies": [{"default": True, "pieces": ["x"]}]})
    async with running(slow, start_engine=False) as live, httpx2.AsyncClient(base_url=live.url) as client:
        starting = asyncio.create_task(live.engine.start())
        for path, status in (("/health", 503), ("/v2/health/ready", 503), ("/v2/health/live", 200)):
            health = await client.get(path)
            assert (health.status_code, health.json()["status"]) == (status, "loading")
            assert health.json()["reason"]
        response = await client.post("/v1/chat/completions", json=prompt_body("count"))
        assert response.status_code == 503
        assert int(response.headers["retry-after"]) >= 1
        assert "max_model_len" not in (await client.get(f"/v1/models/{MODEL}")).json()
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)


async def test_when_the_model_cannot_be_loaded(tmp_path: Path) -> None:
    broken = scripted_model(
        tmp_path, {"load": {"failure": "weights are missing"}, "replies": [{"default": True, "pieces": ["x"]}]}
    )
    async with running(broken, start_engine=False) as live, httpx2.AsyncClient(base_url=live.url) as client:
        with pytest.raises(EngineError):
            await live.engine.start()
        for path in ("/health", "/v2/health/ready", "/v2/health/live"):
            health = await client.get(path)
            assert health.status_code == 503
            assert health.json() == {"status": "failed", "reason": "weights are missing"}
        response = await client.post("/v1/chat/completions", json=prompt_body("count"))
        assert response.status_code == 503
        assert "weights are missing" in response.json()["error"]
