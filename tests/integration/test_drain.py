"""The end of a server: no new work, time for what runs, an error for what does not end in time."""

from __future__ import annotations

import asyncio
import json

import httpx2
import pytest

from mindserve.config.settings import ServeSettings
from tests.serving import MODEL, Model, eventually, is_idle, post_chat, prompt_body, running


async def test_draining_refuses_new_work_and_lets_running_work_end(narrow_model: Model) -> None:
    async with running(narrow_model, ServeSettings(model_name=MODEL, drain_timeout_s=30)) as live:
        hanging = asyncio.create_task(post_chat(live, prompt_body("hang at once")))
        await eventually(lambda: live.engine.stats().num_running == 1)
        queued = asyncio.create_task(post_chat(live, prompt_body("count")))
        await eventually(lambda: live.engine.stats().num_waiting == 1)
        draining = asyncio.create_task(live.server.lifecycle.drain())
        await eventually(lambda: live.server.lifecycle.is_draining)
        async with httpx2.AsyncClient(base_url=live.url) as client:
            for path, status in (("/health", 503), ("/v2/health/ready", 503), ("/v2/health/live", 200)):
                health = await client.get(path)
                assert (health.status_code, health.json()["status"]) == (status, "draining")
            refused = await client.post("/v1/chat/completions", json=prompt_body("count"))
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert not draining.done()
        hanging.cancel()  # its client leaves, so the queued request gets its turn
        assert (await queued).json()["choices"][0]["message"]["content"] == "1 2 3 4 5"
        await draining
        assert is_idle(live)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("text", ["hang at once", "hang after two"])
async def test_what_does_not_end_in_time_gets_an_error(model: Model, text: str, *, stream: bool) -> None:
    async with running(model, ServeSettings(model_name=MODEL, drain_timeout_s=0.05)) as live:
        asking = asyncio.create_task(post_chat(live, prompt_body(text, stream=stream)))
        await eventually(lambda: live.engine.stats().num_running == 1)
        await live.server.lifecycle.drain()
        response = await asking
        assert is_idle(live)
        assert response.status_code == (200 if stream else 500)
        last = json.loads(response.text.strip().split("\n\n")[-1].removeprefix("data: "))
        assert last["error_type"] == "Incomplete Generation"
        assert "shut down" in last["error"]


async def test_an_idle_server_drains_at_once(model: Model) -> None:
    async with running(model, ServeSettings(model_name=MODEL, drain_timeout_s=3600)) as live:
        async with asyncio.timeout(10):
            await live.server.lifecycle.drain()
