"""What the document offers beside plain answers, for requests with media, on the native engine over HTTP. Answers are
those of transformers' own generate, given what reached the engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from mindserve.chat.tokenizer import load_tokenizer
from mindserve.config.settings import ServeSettings
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import MediaKind
from tests import tiny_adapters
from tests import tiny_media_models as tiny
from tests.decoding import whole_text
from tests.engine.media import continuation
from tests.media_prompts import Prompt
from tests.media_service import File, Service, files, media_service, part, text, turn
from tests.qwen import ToldEngine
from tests.serving import MODEL, Model, chat_body, eventually, is_idle

CHAT = "/v1/chat/completions"
NUM_TOKENS = 12
ADAPTER = "adapted"
TARGETS = r".*language_model.*\.(q_proj|v_proj|o_proj|up_proj|down_proj)"
TOOLS_FIRST = "{# calls: <tool_call> #}{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
PAINT = {
    "type": "function",
    "function": {
        "name": "paint",
        "parameters": {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"]},
        "strict": True,
    },
}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Asked:
    """A server of one family, its client, and the same models in transformers."""

    name: str
    service: Service
    client: httpx2.AsyncClient
    theirs: Any
    adapted: Any
    given: tuple[File, ...]

    def body(self, **fields: Any) -> dict[str, Any]:
        """A conversation with an item in each of two turns of the user."""
        one, other = self.given[0], self.given[-1]
        messages = [
            turn(text("What is it? "), part(one.kind, one.data_url)),
            {"role": "assistant", "content": "A thing."},
            turn(part(other.kind, other.data_url), text("And this?")),
        ]
        greedy = {"temperature": 0, "ignore_eos": True, "max_tokens": NUM_TOKENS, "skip_special_tokens": False}
        return chat_body(messages=messages, **{**greedy, **fields})

    async def post(self, **fields: Any) -> dict[str, Any]:
        response = await self.client.post(CHAT, json=self.body(**fields))
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def reference(self, model: Any) -> str:
        """Of transformers, for what reached the engine last; as far as it is sure of it."""
        request = self.service.asked[-1]
        tokens = continuation(self.name, model, Prompt(request.prompt_token_ids, request.media), NUM_TOKENS)
        assert len(tokens) > NUM_TOKENS // 2
        told = whole_text(self.service.live.server.tokenizer, tokens, skip_special_tokens=False)
        return told.rstrip("\ufffd") if len(tokens) < NUM_TOKENS else told


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=tiny.NAMES)
async def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Asked]:
    name = str(request.param)
    folder, adapter = tmp_path_factory.mktemp(name), tmp_path_factory.mktemp("adapter")
    tiny.build(name, folder)
    adapted = tiny_adapters.write(folder, adapter, seed=1, model_class=tiny.load, target_modules=TARGETS)
    (folder / "chat_template.jinja").write_text(TOOLS_FIRST + tiny.CHAT_TEMPLATE)
    tokenizer = load_tokenizer(folder)
    options = EngineOptions(
        model_path=folder,
        dtype="float32",
        num_threads=1,
        kv_memory_gb=0.05,
        block_size=16,
        adapters={ADAPTER: adapter},
    )
    serve = ServeSettings(model_name=MODEL, lora_names=(ADAPTER,))
    hears = name == "qwen2_audio"
    given = tuple(file for file in files() if (file.kind is MediaKind.AUDIO) is hears)
    async with (
        media_service(Model(ToldEngine(options, tokenizer), tokenizer), folder / "files", serve=serve) as service,
        httpx2.AsyncClient(base_url=service.live.url, timeout=120) as client,
    ):
        yield Asked(name, service, client, tiny.load(folder), adapted, given)


def content(answer: dict[str, Any]) -> list[str]:
    return [choice["message"]["content"] for choice in sorted(answer["choices"], key=lambda choice: choice["index"])]


async def test_answers_are_those_of_transformers_and_the_prompt_is_found_again(asked: Asked) -> None:
    hits = asked.service.live.engine.stats().prefix_hit_tokens_total
    first = await asked.post()
    expected = asked.reference(asked.theirs)
    assert content(first)[0].startswith(expected)
    num_prompt = first["usage"]["prompt_tokens"]
    assert num_prompt == len(asked.service.asked[-1].prompt_token_ids)
    assert num_prompt > sum(item.num_tokens for item in asked.service.asked[-1].media)
    again = await asked.post()
    assert content(again) == content(first)
    assert asked.service.live.engine.stats().prefix_hit_tokens_total - hits >= (num_prompt - 1) // 16 * 16 - 16


async def test_a_stream_says_the_same(asked: Asked) -> None:
    whole = await asked.post()
    response = await asked.client.post(CHAT, json=asked.body(stream=True))
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    chunks = [json.loads(line) for line in lines[:-1]]
    told = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    assert [told] == content(whole)
    usage = next(chunk["usage"] for chunk in reversed(chunks) if chunk.get("usage"))
    assert usage["prompt_tokens"] == whole["usage"]["prompt_tokens"]


async def test_neighbours_of_text_and_of_media_do_not_disturb_each_other(asked: Asked) -> None:
    plain = chat_body(temperature=0, ignore_eos=True, max_tokens=NUM_TOKENS)
    alone = [await asked.post(), (await asked.client.post(CHAT, json=plain)).json()]
    bodies = [asked.body(), plain, asked.body(), plain]
    together = await asyncio.gather(*(asked.client.post(CHAT, json=body) for body in bodies))
    assert [content(one.json()) for one in together] == [content(one) for one in alone] * 2


async def test_several_sequences_and_the_best_of_them(asked: Asked) -> None:
    hot = {"temperature": 1, "seed": 5}
    three = content(await asked.post(**hot, n=3))
    assert len(set(three)) == 3
    assert content(await asked.post(**hot, n=3)) == three
    assert content(await asked.post(**hot, n=2, best_of=3)) == three  # all that were made, the likeliest first
    beams = await asked.post(use_beam_search=True, n=2)
    assert len(set(content(beams))) == 2
    assert beams["usage"]["completion_tokens"] >= NUM_TOKENS


async def test_log_probabilities(asked: Asked) -> None:
    answer = await asked.post(logprobs=True, top_logprobs=2)
    entries = answer["choices"][0]["logprobs"]["content"]
    assert len(entries) == NUM_TOKENS
    for entry in entries:
        assert entry["logprob"] == max(one["logprob"] for one in entry["top_logprobs"])
    said = bytes(byte for entry in entries for byte in entry["bytes"]).decode("utf-8", "replace")
    assert said == content(answer)[0]


async def test_stop(asked: Asked) -> None:
    (whole,) = content(await asked.post())
    stop = next(letter for letter in whole[3:] if letter != "\ufffd")
    answer = await asked.post(stop=[stop])
    assert content(answer) == [whole[: whole.index(stop)]]
    assert answer["choices"][0]["finish_reason"] == "stop"


async def test_a_tool_that_must_be_called(asked: Asked) -> None:
    named = {"type": "function", "function": {"name": "paint"}}
    answer = await asked.post(tools=[PAINT], tool_choice=named, max_tokens=200, ignore_eos=False)
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "paint"
    assert json.loads(call["function"]["arguments"]) in ({"colour": "red"}, {"colour": "blue"})
    assert len(asked.service.asked[-1].media) == 2


async def test_an_adapter(asked: Asked) -> None:
    base = await asked.post()
    adapted = await asked.post(model=ADAPTER)
    assert content(adapted)[0].startswith(asked.reference(asked.adapted))
    assert content(adapted) != content(base)
    assert content(await asked.post()) == content(base)


async def test_a_client_that_leaves_while_its_items_are_worked_on(asked: Asked) -> None:
    expected = content(await asked.post())
    shown = asked.given[0]
    parts = [part(shown.kind, shown.data_url), *(text(f"fresh {number}") for number in range(40))]
    body = chat_body(messages=[turn(*parts)], max_tokens=2000, ignore_eos=True)
    for _ in range(3):
        leaving = asyncio.create_task(asked.client.post(CHAT, json=body))
        await eventually(lambda: not is_idle(asked.service.live) and asked.service.live.engine.stats().num_running > 0)
        leaving.cancel()
        await eventually(lambda: is_idle(asked.service.live))
    stats = asked.service.live.engine.stats()
    assert stats.num_free_blocks == stats.num_blocks
    assert stats.num_restarts_total == 0
    assert content(await asked.post()) == expected
