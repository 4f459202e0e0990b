"""What a request binds the answer to holds over HTTP, whatever the model would rather say: tiny random weights behind
Qwen2.5's real tokenizer and chat template, at a temperature at which they rave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import openai
import pytest
import pytest_asyncio
import torch

from tests.qwen import told_model, write_tiny_qwen
from tests.serving import MODEL, Live, post_chat, running

WEATHER_SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "unit": {"enum": ["celsius", "fahrenheit"]},
    },
    "required": ["city", "unit"],
}
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER_SCHEMA, "strict": True}}
NOW = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "additionalProperties": False}}}
NAMED = {"type": "function", "function": {"name": "get_weather"}}
WILD = {"temperature": 1.8, "max_tokens": 200}


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    return write_tiny_qwen(tmp_path_factory.mktemp("qwen"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live(folder: Path) -> AsyncIterator[Live]:
    async with running(told_model(folder)) as started:
        yield started


def client_of(live: Live) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0, timeout=120)


def asked(**fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Weather in Oslo?"}]
    return {"model": MODEL, "messages": messages, **WILD, **fields}


async def choice_of(live: Live, **fields: Any) -> dict[str, Any]:
    answer = await post_chat(live, asked(**fields))
    assert answer.status_code == 200, answer.text
    choice: dict[str, Any] = answer.json()["choices"][0]
    return choice


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
async def test_calls_are_made(live: Live, choice: Any) -> None:
    validator = jsonschema_rs.validator_for({**WEATHER_SCHEMA, "additionalProperties": False})
    num_calls = 0
    asked_for = (choice_of(live, tools=[WEATHER, NOW], tool_choice=choice, seed=seed) for seed in range(6))
    for told in await asyncio.gather(*asked_for):
        if told["finish_reason"] == "length":
            continue
        calls = told["message"]["tool_calls"]
        assert told["finish_reason"] == "tool_calls"
        assert calls
        assert told["message"]["content"] in (None, "")
        for call in calls:
            num_calls += 1
            arguments = json.loads(call["function"]["arguments"])
            if call["function"]["name"] == "get_weather":
                assert validator.is_valid(arguments), arguments
            else:
                assert choice == "required"
                assert arguments == {}
    assert num_calls


async def test_streams_say_the_same(live: Live) -> None:
    fields = {"tools": [WEATHER, NOW], "tool_choice": "required", "seed": 3}
    whole = await choice_of(live, **fields)
    async with client_of(live) as client:
        stream = await client.chat.completions.create(**asked(**fields), stream=True)
        calls: dict[int, list[str]] = {}
        finish = None
        async for chunk in stream:
            for choice in chunk.choices:
                finish = choice.finish_reason or finish
                for delta in choice.delta.tool_calls or []:
                    named = [delta.function.name or "", delta.function.arguments or ""] if delta.function else ["", ""]
                    so_far = calls.setdefault(delta.index, ["", ""])
                    calls[delta.index] = [old + new for old, new in zip(so_far, named, strict=True)]
    told = [[call["function"]["name"], call["function"]["arguments"]] for call in whole["message"]["tool_calls"]]
    assert list(calls.values()) == told
    assert finish == whole["finish_reason"]


async def test_forms_hold(live: Live) -> None:
    schema = {**WEATHER_SCHEMA, "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "weather", "schema": schema}}
    validator = jsonschema_rs.validator_for(schema)
    texts = await asyncio.gather(*(choice_of(live, response_format=form, seed=seed) for seed in range(4)))
    whole = [json.loads(told["message"]["content"]) for told in texts if told["finish_reason"] == "stop"]
    assert whole
    assert all(validator.is_valid(value) for value in whole)
    several = await post_chat(live, asked(response_format=form, n=3, seed=1, ignore_eos=True))
    for told in several.json()["choices"]:
        if told["finish_reason"] == "stop":
            assert validator.is_valid(json.loads(told["message"]["content"]))


def tool(parameters: Any, *, strict: bool) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": parameters, "strict": strict}}


def form_of(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "f", "schema": schema}}


LOOP = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
COSTLY = {"allOf": [{"type": "string", "pattern": f"^.*{number}.*$"} for number in range(100, 160)]}
"""Compiling it takes longer than anybody waits."""
UNFIT = [COSTLY, {"type": "strin"}, {"$ref": "#/nowhere"}, {"type": "string", "pattern": "("}, {"not": {}}]


@pytest.mark.parametrize("stream", [False, True])
async def test_schemas_that_cannot_be_enforced_are_refused_by_name(live: Live, stream: bool) -> None:
    cases = [
        (asked(response_format=form_of(schema)), "response_format.json_schema.schema") for schema in (*UNFIT, LOOP)
    ]
    for schema in UNFIT:
        tools = [WEATHER, tool({"type": "object", "properties": {"a": schema}}, strict=True)]
        cases.append((asked(tools=tools), "tools[1].function.parameters"))
    cases.append((asked(tools=[tool(LOOP, strict=True)], tool_choice="required"), "tools[0].function.parameters"))
    for body, field in cases:
        refused = await post_chat(live, {**body, "stream": stream})
        assert refused.status_code == 422, body
        assert refused.json()["error"].startswith(f"{field} cannot be enforced: "), refused.text
    told = await choice_of(live, tools=[tool(LOOP, strict=False)], tool_choice="required", seed=1)
    assert told["finish_reason"] in ("tool_calls", "length")


async def test_tools_without_strict_may_have_any_schema(live: Live) -> None:
    """The arguments then are any object."""
    odd = tool({"type": "object", "properties": {"a": {"type": "strin"}}}, strict=False)
    # any object is long with such a model; how long depends on the processor's rounding
    asked_for = (choice_of(live, tools=[odd], tool_choice="required", seed=seed) for seed in range(12))
    finishes = await asyncio.gather(*asked_for)
    called = [told for told in finishes if told["finish_reason"] == "tool_calls"]
    for told in called:
        for call in told["message"]["tool_calls"]:
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
    assert called
