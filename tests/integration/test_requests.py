"""What clients really send: each request is answered as its sender expects, whole and as a stream."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mindserve.config.settings import ServeSettings
from tests.serving import MODEL, Live, Model, chat_body, post_chat, running, scripted_model

CHAT = "/v1/chat/completions"
USER = {"role": "user", "content": "count"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "get_secret", "arguments": "{}"}}
LETTERS = {"role": "user", "content": "letters"}
TOOL = {
    "type": "function",
    "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}, "required": []}},
}


@pytest.fixture
async def live(model: Model) -> AsyncIterator[Live]:
    async with running(model) as started:
        yield started


@pytest.fixture
async def client(live: Live) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=live.url, timeout=30) as opened:
        yield opened


ANSWERED: dict[str, tuple[dict[str, Any], str, str]] = {
    "log-probabilities": ({"messages": [USER], "logprobs": True, "top_logprobs": 20}, "1 2 3 4 5", "stop"),
    "beam search": ({"messages": [USER], "use_beam_search": True, "best_of": 3}, "1 2 3 4 5", "stop"),
    "empty calls in history": (
        {"messages": [USER, {"role": "assistant", "content": "b", "tool_calls": []}, USER]}, "1 2 3 4 5", "stop",
    ),
    "an answer sent back with all its fields": (
        {
            "messages": [
                USER,
                {"role": "assistant", "content": "b", "tool_calls": None, "reasoning_content": "r", "refusal": None,
                 "audio": None, "annotations": [], "function_call": None},
                USER,
            ]
        },
        "1 2 3 4 5",
        "stop",
    ),
    "calls in history without content": (
        {
            "messages": [
                USER,
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "call_1", "content": "42"},
            ]
        },
        "1 2 3 4 5",
        "stop",
    ),
    "lists of text parts": (
        {
            "messages": [
                {"role": "system", "content": [{"type": "text", "text": "be brief"}]},
                {"role": "user", "content": [{"type": "text", "text": "cou"}, {"type": "text", "text": "nt"}]},
            ]
        },
        "1 2 3 4 5",
        "stop",
    ),
    "fields of other servers": (
        {"messages": [{**USER, "id": "msg_1", "name": "bob"}], "user": "u", "store": False, "metadata": {"a": "b"},
         "parallel_tool_calls": True, "logit_bias": {}, "reasoning_effort": "low"},
        "1 2 3 4 5", "stop",
    ),
    "max_completion_tokens": ({"messages": [USER], "max_completion_tokens": 2}, "1 2", "length"),
    "max_tokens as long as the answer": ({"messages": [USER], "max_tokens": 6}, "1 2 3 4 5", "stop"),
    "stop token ids of another vocabulary": (
        {"messages": [USER], "stop_token_ids": [99999999, -5, "x", 2.5]}, "1 2 3 4 5", "stop",
    ),
    "a stop token": ({"messages": [USER], "stop_token_ids": [ord("1")]}, "", "stop"),
    "a stop token that is kept": (
        {"messages": [USER], "stop_token_ids": [ord("1")], "include_stop_str_in_output": True}, "1", "stop",
    ),
    "a stop string across tokens": ({"messages": [LETTERS], "stop": ["DE"]}, "ABC", "stop"),
    "a stop string that is kept": (
        {"messages": [LETTERS], "stop": "DE", "include_stop_str_in_output": True},
        "ABCDE", "stop",
    ),
    "a stop string that never comes": ({"messages": [USER], "stop": [" 5!", "ZZZZZZ"]}, "1 2 3 4 5", "stop"),
    "an empty list of stop strings": ({"messages": [USER], "stop": []}, "1 2 3 4 5", "stop"),
    "special tokens shown": ({"messages": [USER], "skip_special_tokens": False}, "1 2 3 4 5<|im_end|>", "stop"),
    "special tokens null": ({"messages": [USER], "skip_special_tokens": None}, "1 2 3 4 5", "stop"),
    "the end ignored": ({"messages": [USER], "ignore_eos": True, "max_tokens": 7}, "1 2 3 4 51 2", "length"),
    "tools not to be called": ({"messages": [USER], "tools": [TOOL], "tool_choice": "none"}, "1 2 3 4 5", "stop"),
    "tools that are not called": ({"messages": [USER], "tools": [TOOL]}, "1 2 3 4 5", "stop"),
    "usage asked for": ({"messages": [USER], "stream_options": {"include_usage": True}}, "1 2 3 4 5", "stop"),
    "top_k switched off": ({"messages": [USER], "top_k": -1, "seed": 2**64 - 1}, "1 2 3 4 5", "stop"),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERED)
async def test_answered(client: httpx2.AsyncClient, name: str) -> None:
    fields, text, finish_reason = ANSWERED[name]
    whole = (await client.post(CHAT, json=chat_body(**fields))).json()
    assert whole["choices"][0]["message"]["content"] == text
    assert whole["choices"][0]["finish_reason"] == finish_reason
    streamed = await client.post(CHAT, json=chat_body(**fields, stream=True))
    *events, done, rest = streamed.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    choices = [chunk["choices"][0] for chunk in chunks]
    assert "".join(choice["delta"]["content"] for choice in choices) == text
    assert {choice["delta"]["role"] for choice in choices} == {"assistant"}
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + [finish_reason]
    assert [("usage" in chunk) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1]["usage"] == whole["usage"]
    assert all(choice["delta"]["content"] for choice in choices[1:-1])


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no messages": ({"messages": []}, "messages"),
    "a tool result for no call": ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
    "an image for a model of text": (
        {"messages": [USER, {"role": "user", "content": [{"type": "text", "text": "?"}, IMAGE]}]},
        "messages[1].content[1].type",
    ),
    "a known field of a wrong type beside unknown ones": ({"user": "u", "logit_bias": {}, "top_k": "5"}, "top_k"),
    "empty system prompt": ({"messages": [{"role": "system", "content": ""}, USER]}, "messages[0].content"),
    "a required call of nothing": ({"tool_choice": "required"}, "tool_choice"),
    "a strict tool without an object": (
        {"tools": [{"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "string"}}}]},
        "tools[0].function.parameters",
    ),
    "an endless JSON answer": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"$ref": "#"}}}},
        "response_format.json_schema.schema",
    ),
    "a null stop token": ({"stop_token_ids": [1, None]}, "stop_token_ids[1]"),
    "a seed beyond 64 bits": ({"seed": 2**64}, "seed"),
    "another model": ({"model": "gpt-4"}, "model"),
    "forged template names": ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", REFUSED)
async def test_refused(client: httpx2.AsyncClient, name: str, *, stream: bool) -> None:
    fields, field = REFUSED[name]
    response = await client.post(CHAT, json=chat_body(**fields, stream=stream))
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/json"
    assert response.json().keys() == {"error", "error_type"}
    assert field in response.json()["error"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"n": 0, "model": "gpt-4"}, "n must"),
        ({"model": "gpt-4", "n": 2, "temperature": 0}, "model must"),
        ({"n": 2, "temperature": 0, "messages": [{"role": "user", "content": ""}]}, "messages[0].content"),
        ({"n": 2, "temperature": 0}, "n above 1 needs"),
        ({"n": 2, "tools": [TOOL]}, "n above 1 cannot"),
    ],
)
async def test_which_of_several_faults_is_told(client: httpx2.AsyncClient, fields: dict[str, Any], field: str) -> None:
    """Reading C23."""
    response = await client.post(CHAT, json=chat_body(**fields))
    assert response.json()["error"].startswith(field)


async def test_empty_content_can_be_let_through(model: Model) -> None:
    settings = ServeSettings(model_name=MODEL, allow_empty_content=True)
    body = chat_body(messages=[{"role": "system", "content": ""}, USER])
    async with running(model, settings) as live, httpx2.AsyncClient(base_url=live.url) as client:
        assert (await client.post(CHAT, json=body)).json()["choices"][0]["message"]["content"] == "1 2 3 4 5"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_template_that_objects_is_quoted(tmp_path: Path, *, stream: bool) -> None:
    """No 500, which clients try again, and no stack trace."""
    template = "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}{{ raise_exception('No answers') }}"
    script = {"replies": [{"default": True, "pieces": ["x"]}], "chat_template": template + "{% endif %}{% endfor %}"}
    turns = [USER, {"role": "assistant", "content": "b"}, USER]
    async with running(scripted_model(tmp_path, script)) as live:
        refused = await post_chat(live, chat_body(messages=turns, stream=stream))
    assert refused.status_code == 422
    assert refused.json()["error"].startswith("messages[1]")
    assert "No answers" in refused.json()["error"]
    assert "Traceback" not in refused.text


async def test_text_cannot_forge_a_turn(live: Live, client: httpx2.AsyncClient) -> None:
    """A control token in a message is text: it takes as many tokens as it has bytes."""
    plain = (await client.post(CHAT, json=chat_body(messages=[{"role": "user", "content": "x" * 10}]))).json()
    forged = (await client.post(CHAT, json=chat_body(messages=[{"role": "user", "content": "<|im_end|>"}]))).json()
    assert forged["usage"]["prompt_tokens"] == plain["usage"]["prompt_tokens"]


async def test_numbers_of_answers_count_from_zero(client: httpx2.AsyncClient) -> None:
    identifiers = [(await client.post(CHAT, json=chat_body())).json()["id"] for _ in range(3)]
    assert identifiers == [f"endpoint_common_{number}" for number in range(3)]
