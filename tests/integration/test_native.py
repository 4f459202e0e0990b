"""The server over the native engine: a tiny random model in its own process, behind a real socket."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from mindserve.chat.tokenizer import load_tokenizer
from mindserve_engine.native.process import NativeEngine
from mindserve_engine.options import EngineOptions
from mindserve_engine.scripted.model import write_model
from tests.serving import Live, Model, chat_body, eventually, is_idle, running, write_script

CHAT = "/v1/chat/completions"

pytestmark = pytest.mark.asyncio(loop_scope="module")  # one engine process for all: starting one takes seconds


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama whose vocabulary is bytes and three control tokens."""
    directory = tmp_path_factory.mktemp("tiny")
    write_model(write_script(directory, [{"default": True, "pieces": ["x"]}]), directory)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=259,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        eos_token_id=258,
    )
    LlamaForCausalLM(config).save_pretrained(directory)
    return directory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live(folder: Path) -> AsyncIterator[Live]:
    options = EngineOptions(model_path=folder, dtype="float32", num_threads=1, kv_memory_gb=0.05, block_size=16)
    async with running(Model(NativeEngine(options), load_tokenizer(folder))) as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(live: Live) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=live.url, timeout=60) as opened:
        yield opened


def _ask(text: str, **fields: Any) -> dict[str, Any]:
    greedy = {"messages": [{"role": "user", "content": text}], "temperature": 0, "ignore_eos": True, "max_tokens": 12}
    return chat_body(**{**greedy, **fields})


def _chunks(text: str) -> list[dict[str, Any]]:
    events = text.removesuffix("\n\n").split("\n\n")
    return [json.loads(event.removeprefix("data: ")) for event in events if event != "data: [DONE]"]


async def test_a_stream_and_a_body_say_the_same(client: httpx2.AsyncClient) -> None:
    whole = (await client.post(CHAT, json=_ask("hello"))).json()
    streamed = await client.post(CHAT, json=_ask("hello", stream=True))
    chunks = _chunks(streamed.text)
    assert streamed.text.endswith("data: [DONE]\n\n")
    content = "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks)
    assert content == whole["choices"][0]["message"]["content"]
    assert whole["choices"][0]["finish_reason"] == chunks[-1]["choices"][0]["finish_reason"] == "length"
    usage = whole["usage"]
    assert usage["completion_tokens"] == len(usage["batch_size"]) == len(usage["queue_wait_time"]) == 12
    assert len(whole["decode_time_arr"]) == 11
    assert chunks[-1]["usage"]["prompt_tokens"] == usage["prompt_tokens"]


async def test_a_crowd_gets_what_each_would_get_alone(client: httpx2.AsyncClient, live: Live) -> None:
    questions = [_ask(f"question {number % 5}", stream=bool(number % 2), max_tokens=8) for number in range(40)]
    alone = {}
    for number in range(5):
        body = (await client.post(CHAT, json=_ask(f"question {number}", max_tokens=8))).json()
        alone[number] = body["choices"][0]["message"]["content"]
    answers = await asyncio.gather(*(client.post(CHAT, json=question) for question in questions))
    for number, answer in enumerate(answers):
        if number % 2:
            got = "".join(chunk["choices"][0]["delta"]["content"] for chunk in _chunks(answer.text))
        else:
            got = answer.json()["choices"][0]["message"]["content"]
        assert got == alone[number % 5]
    await eventually(lambda: is_idle(live))


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_the_engine(live: Live, *, stream: bool) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", live.port)
    data = json.dumps(_ask("hello", stream=stream, max_tokens=500)).encode()
    writer.write(f"POST {CHAT} HTTP/1.1\r\nHost: t\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    await eventually(lambda: live.engine.stats().num_running == 1)
    writer.close()
    await writer.wait_closed()
    await eventually(lambda: is_idle(live))


async def test_the_engine_process_is_killed(live: Live, client: httpx2.AsyncClient) -> None:
    """Requests in flight get an error, new ones a 503, and after the restart everything is as before."""
    assert isinstance(live.engine, NativeEngine)
    before = (await client.post(CHAT, json=_ask("hello"))).json()["choices"]
    [pid] = live.engine.pids
    asking = [asyncio.create_task(client.post(CHAT, json=_ask("x", stream=s, max_tokens=500))) for s in (True, False)]
    await eventually(lambda: live.engine.stats().num_running == 2)
    os.kill(pid, signal.SIGKILL)
    streamed, whole = await asyncio.gather(*asking)
    assert whole.status_code == 500
    assert whole.json()["error_type"] == "Incomplete Generation"
    assert "[DONE]" not in streamed.text
    assert _chunks(streamed.text)[-1]["error_type"] == "Incomplete Generation"
    refused = await client.post(CHAT, json=_ask("x"))
    assert refused.status_code == 503
    assert (await client.get("/v2/health/ready")).json()["status"] == "restarting"
    assert (await client.get("/v2/health/live")).status_code == 200
    await eventually(lambda: live.engine.health().state == "ready", timeout_s=60)
    assert (await client.post(CHAT, json=_ask("hello"))).json()["choices"] == before
    assert live.engine.pids != [pid]
    assert is_idle(live)
    assert 'engine_restarts_total{model_name="m"} 1.0' in (await client.get("/metrics")).text


async def test_health_tells_of_an_instance_that_is_missing(folder: Path) -> None:
    """The others answer, so the server is ready; probes see that it is not whole."""
    options = EngineOptions(model_path=folder, dtype="float32", num_threads=1, kv_memory_gb=0.05, num_instances=2)
    engine = NativeEngine(options)
    async with (
        running(Model(engine, load_tokenizer(folder))) as live,
        httpx2.AsyncClient(base_url=live.url, timeout=60) as client,
    ):
        assert (await client.get("/health")).json() == {"status": "ready", "reason": ""}
        os.kill(engine.pids[0], signal.SIGKILL)
        await eventually(lambda: engine.health().reason != "")
        for path in ("/health", "/v2/health/ready", "/v2/health/live"):
            health = await client.get(path)
            assert health.status_code == 200
            assert health.json()["status"] == "ready"
            assert health.json()["reason"].startswith("1 of 2 instances not ready")
        assert (await client.post(CHAT, json=_ask("hello"))).status_code == 200
        await eventually(lambda: engine.health().reason == "", timeout_s=60)
        assert (await client.get("/health")).json() == {"status": "ready", "reason": ""}
