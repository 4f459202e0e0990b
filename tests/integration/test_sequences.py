"""Several sequences, beams, log-probabilities and adapters over real sockets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from mindserve.config.settings import ServeSettings
from tests.serving import MODEL, Live, eventually, is_idle, post_chat, prompt_body, running, scripted_model

CHOIR: list[dict[str, Any]] = [
    {
        "contains": "choir",
        "pieces": ["la", " la", " end"],
        "logprobs": -2.0,
        "others": [
            {"pieces": ["do", " re", " mi", " fa"], "logprobs": -0.25, "finish": "length"},
            {"pieces": ["so"], "logprobs": -1.0},
        ],
    },
    {
        "contains": "one never ends",
        "pieces": ["a", "b"],
        "repeat": True,
        "others": [{"pieces": ["x", "y", "z"]}],
    },
    {"contains": "one fails", "pieces": ["a", "b", "c"], "fail_sequence_after": 1, "others": [{"pieces": ["x"] * 5}]},
]


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    model = scripted_model(tmp_path, CHOIR, max_batch_size=4, adapters={"tuned": tmp_path})
    async with running(model, ServeSettings(model_name=MODEL, lora_names=("tuned",))) as started:
        yield started


async def events(live: Live, body: dict[str, Any]) -> list[Any]:
    text = (await post_chat(live, {**body, "stream": True})).text
    assert text.endswith("\n\n")
    data = [event.removeprefix("data: ") for event in text.removesuffix("\n\n").split("\n\n")]
    return [one if one == "[DONE]" else json.loads(one) for one in data]


async def test_whole_answers_have_the_likeliest_sequence_first(live: Live) -> None:
    for fields in ({"n": 3}, {"best_of": 3}, {"n": 2, "best_of": 3}):
        body = (await post_chat(live, prompt_body("choir", **fields))).json()
        texts = [choice["message"]["content"] for choice in body["choices"]]
        assert texts == ["do re mi fa", "so", "la la end"]
        assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
        assert [choice["finish_reason"] for choice in body["choices"]] == ["length", "stop", "stop"]
        assert [choice["logprobs"] for choice in body["choices"]] == [None] * 3
        assert body["usage"]["completion_tokens"] == 4 + 2 + 4
        assert len(body["usage"]["batch_size"]) == len(body["usage"]["queue_wait_time"]) == 4
        assert len(body["decode_time_arr"]) == 3


async def test_streams_give_sequences_as_they_grow(live: Live) -> None:
    *chunks, done = await events(live, prompt_body("choir", n=3))
    assert done == "[DONE]"
    choices = [chunk["choices"][0] for chunk in chunks]
    assert all(len(chunk["choices"]) == 1 for chunk in chunks)
    assert [(choice["index"], choice["delta"]["content"]) for choice in choices] == [
        (0, ""), (1, ""), (2, ""),
        (0, "la"), (1, "do"), (2, "so"),
        (0, " la"), (1, " re"), (2, ""),
        (0, " end"), (1, " mi"),
        (0, ""), (1, " fa"),
    ]  # fmt: skip
    usages = {chunk["choices"][0]["index"]: chunk["usage"] for chunk in chunks if "usage" in chunk}
    assert {index: usage["completion_tokens"] for index, usage in usages.items()} == {0: 4, 1: 4, 2: 2}
    assert {index: len(usage["batch_size"]) for index, usage in usages.items()} == {0: 4, 1: 4, 2: 2}


async def test_a_search_streams_each_sequence_in_one_piece(live: Live) -> None:
    asked = prompt_body("choir", n=2, use_beam_search=True, top_logprobs=1, temperature=0)
    *chunks, done = await events(live, asked)
    assert done == "[DONE]"
    choices = [chunk["choices"][0] for chunk in chunks]
    told = [(choice["index"], choice["delta"]["content"], choice["finish_reason"]) for choice in choices]
    assert told == [(0, "", None), (1, "", None), (0, "la la end", "stop"), (1, "do re mi fa", "length")]
    assert [len(choice["logprobs"]["content"]) for choice in choices[2:]] == [4, 4]
    whole = (await post_chat(live, asked)).json()
    assert [choice["message"]["content"] for choice in whole["choices"]] == ["la la end", "do re mi fa"]
    one = (await post_chat(live, prompt_body("choir", use_beam_search=True, best_of=3))).json()
    assert len(one["choices"]) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_string_ends_one_sequence_and_the_engine_is_told(live: Live, stream: bool) -> None:
    """The first sequence would go on for ever."""
    asked = prompt_body("one never ends", n=2, stop=["ab", "abab", "zz"], max_tokens=1_000_000)
    if stream:
        *chunks, _ = await events(live, asked)
        texts = ["", ""]
        for chunk in chunks:
            texts[chunk["choices"][0]["index"]] += chunk["choices"][0]["delta"]["content"]
        assert texts == ["", "xyz"]
        assert [chunk["usage"]["completion_tokens"] for chunk in chunks if "usage" in chunk] == [2, 4]
    else:
        body = (await post_chat(live, asked)).json()
        assert sorted(choice["message"]["content"] for choice in body["choices"]) == ["", "xyz"]
        assert body["usage"]["completion_tokens"] == 6
    await eventually(lambda: is_idle(live))


async def test_one_failing_sequence_fails_the_request(live: Live) -> None:
    refused = await post_chat(live, prompt_body("one fails", n=2))
    assert refused.status_code == 500
    *_, last = await events(live, prompt_body("one fails", n=2))
    assert "the script says so" in last["error"]
    await eventually(lambda: is_idle(live))


async def test_more_beams_than_places_are_refused_by_name(live: Live) -> None:
    refused = await post_chat(live, prompt_body("choir", use_beam_search=True, n=5))
    assert refused.status_code == 422
    assert refused.json()["error"] == "use_beam_search: is 5, too many beams: a step runs at most 4 sequences"


async def test_adapters_have_names(live: Live) -> None:
    for name in (MODEL, "tuned"):
        body = (await post_chat(live, {**prompt_body("choir"), "model": name})).json()
        assert (body["model"], body["choices"][0]["message"]["content"]) == (name, "la la end")
    refused = await post_chat(live, {**prompt_body("choir"), "model": "tune"})
    assert refused.status_code == 422
    assert refused.json()["error"] == 'model must be one of the served models ("m", "tuned"), got "tune"'
    async with httpx2.AsyncClient(base_url=live.url) as client:
        models = (await client.get("/v1/models")).json()["data"]
    assert [(model["id"], model["parent"]) for model in models] == [(MODEL, None), ("tuned", MODEL)]


async def test_openai_client_reads_sequences_and_log_probabilities(live: Live) -> None:
    async with openai.AsyncOpenAI(base_url=f"{live.url}/v1", api_key="any", max_retries=0) as client:
        messages: list[Any] = [{"role": "user", "content": "choir"}]
        answer = await client.chat.completions.create(
            model=MODEL, messages=messages, n=2, logprobs=True, top_logprobs=2
        )
        assert [choice.message.content for choice in answer.choices] == ["do re mi fa", "la la end"]
        best = answer.choices[0].logprobs
        assert best is not None
        assert best.content is not None
        assert [entry.token for entry in best.content] == ["do", " re", " mi", " fa"]
        assert [top.logprob for top in best.content[0].top_logprobs] == [-0.25, -1.25]
