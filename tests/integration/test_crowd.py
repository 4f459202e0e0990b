"""Many clients at once: every one gets its own answer, whole, and nothing is left afterwards."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.serving import Live, Model, chat_body, eventually, is_idle, running, scripted_model

ANSWERS = {
    "hello": "Hello! How are you?",
    "count": "1 2 3 4 5",
    "letters": "ABCDEFG",
    "emoji": "日本語 👩\u200d🚀!",
}
STOPPED = {"count": ("count", [" 4"], "1 2 3"), "letters": ("letters", ["DE"], "ABC")}


def _kinds() -> list[tuple[dict[str, Any], int, str]]:
    """Request fields, status, and the text of the answer or a word of the refusal."""
    kinds: list[tuple[dict[str, Any], int, str]] = [
        (_ask(word, stream=stream), 200, text) for word, text in ANSWERS.items() for stream in (True, False)
    ]
    kinds += [
        (_ask(word, stream=stream, stop=stop), 200, text)
        for word, stop, text in STOPPED.values()
        for stream in (True, False)
    ]
    kinds += [(_ask("count", max_tokens=2), 200, "1 2"), (_ask("count", max_tokens=2, stream=True), 200, "1 2")]
    kinds += [(_ask("count", temperature=-1), 422, "temperature"), (_ask("count", model="x"), 422, "model")]
    kinds += [(_ask("fail at once"), 500, "engine")]
    return kinds


def _ask(text: str, **fields: Any) -> dict[str, Any]:
    return chat_body(**{"messages": [{"role": "user", "content": text}], **fields})


def _text(response: httpx2.Response) -> str:
    if not response.headers["content-type"].startswith("text/event-stream"):
        body = response.json()
        return str(body["error"] if "error" in body else body["choices"][0]["message"]["content"])
    *events, done, _ = response.text.split("\n\n")
    assert done == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert len({(chunk["id"], chunk["created"]) for chunk in chunks}) == 1
    return "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks)


@pytest.mark.parametrize("batch_size", [200, 7])
async def test_two_hundred_mixed_requests(tmp_path: Path, batch_size: int) -> None:
    replies = [
        {"contains": "count", "pieces": ["1", " 2", " 3", " 4", " 5"]},
        {"contains": "letters", "pieces": ["A", "B", "CD", "EF", "G"]},
        {"contains": "emoji", "pieces": ["日本", "語", " ", "👩", "\u200d", "🚀", "!"]},
        {"contains": "fail at once", "pieces": ["never"], "fail_after": 0},
        {"default": True, "pieces": ["Hello", "!", " How are you?"]},
    ]
    model = scripted_model(tmp_path, replies, max_batch_size=batch_size)
    kinds = _kinds()
    wanted = [kinds[number % len(kinds)] for number in range(200)]
    async with running(model) as live, httpx2.AsyncClient(base_url=live.url, timeout=60) as client:
        answers = await asyncio.gather(*(client.post("/v1/chat/completions", json=body) for body, _, _ in wanted))
        for (body, status, text), answer in zip(wanted, answers, strict=True):
            assert answer.status_code == status, (body, answer.text)
            got = _text(answer)
            assert got == text if status == 200 else text in got
        identifiers = [answer.json()["id"] for answer in answers if answer.text.startswith('{"id"')]
        assert len(set(identifiers)) == len(identifiers)
        await eventually(lambda: is_idle(live))


async def test_a_thousand_requests_leave_nothing(model: Model) -> None:
    """Streamed, whole, refused, broken, abandoned: the tables are empty afterwards."""
    kinds = [_ask("count"), _ask("count", stream=True), _ask("x", n=0), _ask("fail after two", stream=True)]
    async with running(model) as live, httpx2.AsyncClient(base_url=live.url, timeout=60) as client:
        for _ in range(25):
            await asyncio.gather(*(_perhaps_abandon(client, live, kinds[n % 4], give_up=n % 8 == 5) for n in range(40)))
        await eventually(lambda: is_idle(live))
        assert live.server.prompts.num_jobs == 0


async def _perhaps_abandon(client: httpx2.AsyncClient, live: Live, body: dict[str, Any], *, give_up: bool) -> None:
    if not give_up:
        await client.post("/v1/chat/completions", json=body)
        return
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        await response.aclose()
