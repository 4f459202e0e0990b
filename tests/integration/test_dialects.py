"""Both dialects over real HTTP: what each reads and writes, row by row of the table of dialects (D1 to D13)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
import pytest

from mindserve.api.contract import openapi_json
from mindserve.config.settings import Dialect, ServeSettings
from tests.serving import MODEL, Live, eventually, is_idle, prompt_body, running, scripted_model
from tests.tool_replies import OSLO, PEKING, WEATHER, call_text

CHAT = "/v1/chat/completions"
HEADER = "X-Mindserve-Dialect"
REPLIES: list[dict[str, Any]] = [
    {"contains": "fail after two", "pieces": ["one", " two", " three"], "fail_after": 2},
    {"contains": "count", "pieces": ["1", " 2", " 3"], "others": [{"pieces": ["4"]}], "logprobs": -0.5},
    {"contains": "two cities", "pieces": ["Let me see.\n", OSLO, "\n", PEKING, "\nDone."], "logprobs": -0.5},
    {"contains": "in one token", "pieces": [f"{OSLO}{PEKING} done"]},
    {"contains": "Oslo", "pieces": list(OSLO), "others": [{"pieces": ["It is warm"]}]},
    {"contains": "now", "pieces": [call_text("now", "{}")]},
    {"default": True, "pieces": ["Hello", "!"]},
]


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    settings = ServeSettings(model_name=MODEL, full_text_enabled=True, max_request_bytes=100_000)
    async with running(scripted_model(tmp_path, REPLIES), settings) as started:
        yield started


@pytest.fixture
async def client(live: Live) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=live.url, timeout=30) as opened:
        yield opened


async def ask(client: httpx2.AsyncClient, dialect: str, prompt: str, **fields: Any) -> httpx2.Response:
    return await client.post(CHAT, json=prompt_body(prompt, **fields), headers={HEADER: dialect})


async def stream(client: httpx2.AsyncClient, dialect: str, prompt: str, **fields: Any) -> list[Any]:
    """Every event, the end mark as text."""
    text = (await ask(client, dialect, prompt, stream=True, **fields)).text
    data = [event.removeprefix("data: ") for event in text.removesuffix("\n\n").split("\n\n")]
    return [one if one == "[DONE]" else json.loads(one) for one in data]


def is_valid(dialect: Dialect, component: str, body: Any) -> bool:
    components = json.loads(openapi_json(dialect))["components"]
    root = {"$ref": f"#/components/schemas/{component}", "components": components}
    return jsonschema_rs.Draft202012Validator(root).is_valid(body)


# -------------------------------------------------------------------------------------------------------- D1, D13


async def test_a_whole_answer_has_the_keys_of_its_dialect(client: httpx2.AsyncClient) -> None:
    ours, theirs = [(await ask(client, name, "count")).json() for name in Dialect]
    assert set(ours) - set(theirs) == {"prefill_time", "decode_time_arr"}
    assert set(ours["usage"]) - set(theirs["usage"]) == {"batch_size", "queue_wait_time"}
    assert theirs["choices"][0]["message"] == {"role": "assistant", "content": "1 2 3", "refusal": None}
    assert ours["choices"][0]["message"] == {"role": "assistant", "content": "1 2 3", "tool_calls": []}
    for dialect, body in zip(Dialect, (ours, theirs), strict=True):
        assert is_valid(dialect, "ChatCompletion", body)


async def test_a_message_of_nothing_but_calls(client: httpx2.AsyncClient) -> None:
    ours, theirs = [
        (await ask(client, name, "Oslo", tools=[WEATHER])).json()["choices"][0]["message"] for name in Dialect
    ]
    assert (ours["content"], theirs["content"]) == ("", None)
    assert ours["tool_calls"][0]["function"] == theirs["tool_calls"][0]["function"]


async def test_the_role_is_in_the_first_delta_alone(client: httpx2.AsyncClient) -> None:
    events = await stream(client, "openai", "count", n=2)
    *chunks, end = events
    assert end == "[DONE]"
    seen: dict[int, list[Any]] = {}
    for chunk in chunks:
        assert is_valid(Dialect.OPENAI, "ChatCompletionChunk", chunk)
        assert "usage" not in chunk
        (choice,) = chunk["choices"]
        seen.setdefault(choice["index"], []).append(choice["delta"])
    assert seen[0] == [{"role": "assistant", "content": ""}, {"content": "1"}, {"content": " 2"}, {"content": " 3"}, {}]
    assert seen[1] == [{"role": "assistant", "content": ""}, {"content": "4"}, {}]


async def test_the_role_is_in_every_delta_of_the_document(client: httpx2.AsyncClient) -> None:
    *chunks, _ = await stream(client, "vllm", "count")
    assert {chunk["choices"][0]["delta"]["role"] for chunk in chunks} == {"assistant"}
    assert "usage" in chunks[-1]


async def test_usage_comes_in_a_chunk_of_its_own(client: httpx2.AsyncClient) -> None:
    whole = (await ask(client, "openai", "count", n=2)).json()["usage"]
    *chunks, usage, end = await stream(client, "openai", "count", n=2, stream_options={"include_usage": True})
    assert end == "[DONE]"
    assert [chunk["usage"] for chunk in chunks] == [None] * len(chunks)
    assert (usage["choices"], usage["usage"]) == ([], whole)
    assert whole["completion_tokens"] == 4 + 2
    assert usage["id"] == chunks[0]["id"]
    assert is_valid(Dialect.OPENAI, "ChatCompletionChunk", usage)


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_usage": None}])
async def test_usage_is_left_out_unless_it_is_asked_for(client: httpx2.AsyncClient, options: Any) -> None:
    events = await stream(client, "openai", "count", stream_options=options)
    assert all("usage" not in chunk and chunk["choices"] for chunk in events[:-1])


async def test_include_usage_changes_nothing_in_the_other_dialect(client: httpx2.AsyncClient) -> None:
    plain, asked = [
        await stream(client, "vllm", "count", **fields) for fields in ({}, {"stream_options": {"include_usage": True}})
    ]
    assert [chunk["choices"] for chunk in plain[:-1]] == [chunk["choices"] for chunk in asked[:-1]]


async def test_full_text_is_the_document_s_alone(client: httpx2.AsyncClient) -> None:
    """The setting is on."""
    ours, theirs = [await stream(client, name, "count") for name in Dialect]
    assert ours[-2]["full_text"] == "1 2 3"
    assert all("full_text" not in chunk for chunk in theirs[:-1])
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in theirs[:-1]) == "1 2 3"


# -------------------------------------------------------------------------------------------------------- D2 to D9


@pytest.mark.parametrize(
    ("fields", "ours", "theirs", "param", "code"),
    [
        ({"temperature": -1}, 422, 400, "temperature", None),
        ({"top_logprobs": 2, "logprobs": False}, 422, 400, "top_logprobs", None),
        ({"model": "other"}, 422, 404, "model", "model_not_found"),
        ({"messages": [{"role": "user", "content": "x" * 90_000}], "n": 0}, 422, 400, "n", None),
        ({"messages": [{"role": "user", "content": "x" * 100_001}]}, 413, 413, None, "request_too_large"),
    ],
)
async def test_refusals(
    client: httpx2.AsyncClient, fields: Any, ours: int, theirs: int, param: str | None, code: str | None
) -> None:
    flat, nested = [
        await client.post(CHAT, json={**prompt_body("hello"), **fields}, headers={HEADER: name}) for name in Dialect
    ]
    assert (flat.status_code, nested.status_code) == (ours, theirs)
    error = nested.json()["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)
    assert flat.json()["error"] == error["message"]
    assert is_valid(Dialect.VLLM, "ErrorBody", flat.json())
    assert is_valid(Dialect.OPENAI, "OpenAIErrorBody", nested.json())


async def test_a_prompt_that_is_too_long(tmp_path: Path) -> None:
    model = scripted_model(tmp_path, REPLIES)
    settings = ServeSettings(model_name=MODEL, max_input_token_len=30)
    async with running(model, settings) as live, httpx2.AsyncClient(base_url=live.url) as client:
        flat, nested = [await ask(client, name, "x" * 60) for name in Dialect]
    assert (flat.status_code, nested.status_code) == (422, 400)
    assert nested.json()["error"]["code"] == "context_length_exceeded"
    assert "maximum context length is 1048576 tokens" in nested.json()["error"]["message"]


async def test_a_full_queue(tmp_path: Path) -> None:
    model = scripted_model(
        tmp_path, [{"default": True, "pieces": ["x"], "hang_after": 0}], max_batch_size=1, max_waiting=1
    )
    async with running(model) as live, httpx2.AsyncClient(base_url=live.url, timeout=30) as client:
        body = prompt_body("x", stream=True)
        async with client.stream("POST", CHAT, json=body), client.stream("POST", CHAT, json=body):
            flat, nested = [await ask(client, name, "x") for name in Dialect]
        await eventually(lambda: is_idle(live))
    assert (flat.status_code, nested.status_code) == (503, 429)
    assert nested.json()["error"]["type"] == "rate_limit_error"
    assert int(flat.headers["retry-after"]) >= 1
    assert flat.headers["retry-after"] == nested.headers["retry-after"]


async def test_an_engine_that_fails(client: httpx2.AsyncClient) -> None:
    flat, nested = [await ask(client, name, "fail after two") for name in Dialect]
    assert (flat.status_code, nested.status_code) == (500, 500)
    assert flat.json()["error_type"] == "Incomplete Generation"
    assert nested.json()["error"]["type"] == "server_error"
    for dialect in Dialect:
        *chunks, last = await stream(client, dialect, "fail after two", stream_options={"include_usage": True})
        assert is_valid(dialect, "ErrorBody" if dialect is Dialect.VLLM else "OpenAIErrorBody", last)
        assert all(choice["finish_reason"] is None for chunk in chunks for choice in chunk["choices"])


# -------------------------------------------------------------------------------------------------------- D10


@pytest.mark.parametrize("own", Dialect)
async def test_the_header_wins_over_the_server_s_dialect(tmp_path: Path, own: Dialect) -> None:
    model = scripted_model(tmp_path, REPLIES)
    async with (
        running(model, ServeSettings(model_name=MODEL, dialect=own)) as live,
        httpx2.AsyncClient(base_url=live.url) as client,
    ):
        for headers, dialect in (({}, own), ({HEADER: "vllm"}, Dialect.VLLM), ({HEADER: "openai"}, Dialect.OPENAI)):
            answer = (await client.post(CHAT, json=prompt_body("hi"), headers=headers)).json()
            assert ("prefill_time" in answer) == (dialect is Dialect.VLLM)
            served = await client.get("/openapi.json", headers=headers)
            assert served.content == openapi_json(dialect)
            assert served.headers["vary"] == HEADER
            for path in ("/nowhere", "/v1/models/other"):
                error = (await client.get(path, headers=headers)).json()["error"]
                assert isinstance(error, str) == (dialect is Dialect.VLLM)


@pytest.mark.parametrize("value", ["", "OpenAI", "mindie", "vllm, openai"])
@pytest.mark.parametrize("own", Dialect)
async def test_any_other_value_of_the_header_is_refused(tmp_path: Path, own: Dialect, value: str) -> None:
    model = scripted_model(tmp_path, REPLIES)
    async with (
        running(model, ServeSettings(model_name=MODEL, dialect=own)) as live,
        httpx2.AsyncClient(base_url=live.url, headers={HEADER: value}) as client,
    ):
        refused = [
            await client.post(CHAT, json=prompt_body("hi")),
            *[await client.get(path) for path in ("/v1/models", f"/v1/models/{MODEL}", "/openapi.json")],
        ]
        for response in refused:
            error = response.json()["error"]
            assert response.status_code == (422 if own is Dialect.VLLM else 400)
            text = error if own is Dialect.VLLM else error["message"]
            assert text == f'{HEADER} must be vllm or openai, got "{value}"'
        assert (await client.get("/health")).status_code == 200


async def test_two_different_headers_are_refused(client: httpx2.AsyncClient) -> None:
    twice = await client.post(CHAT, json=prompt_body("hi"), headers=[(HEADER, "vllm"), (HEADER, "openai")])
    assert (twice.status_code, twice.json()["error_type"]) == (422, "Input Validation Error")
    same = await client.post(CHAT, json=prompt_body("hi"), headers=[(HEADER, "openai"), (HEADER, "openai")])
    assert "prefill_time" not in same.json()


# -------------------------------------------------------------------------------------------------------- D11


TOGETHER: list[tuple[dict[str, Any], str]] = [
    ({"stop": ["never said"]}, "stop"),
    ({"stop_token_ids": [1]}, "stop_token_ids"),
    ({"stop": ["never said"], "include_stop_str_in_output": True}, "stop"),
    ({"n": 2}, "n"),
    ({"best_of": 2}, "best_of"),
    ({"logprobs": True}, "logprobs"),
    ({"top_logprobs": 2}, "top_logprobs"),
]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(("fields", "named"), TOGETHER)
async def test_tools_with_what_only_the_document_forbids(
    client: httpx2.AsyncClient, fields: dict[str, Any], named: str, *, streams: bool
) -> None:
    if streams and "best_of" in fields:
        fields = {**fields, "n": 2}
    refused = await ask(client, "vllm", "Oslo", tools=[WEATHER], stream=streams, **fields)
    assert refused.status_code == 422
    assert refused.json()["error"].startswith(named)
    if streams:
        events = await stream(client, "openai", "Oslo", tools=[WEATHER], **fields)
        ends = {choice["finish_reason"] for chunk in events[:-1] for choice in chunk["choices"]} - {None}
    else:
        choices = (await ask(client, "openai", "Oslo", tools=[WEATHER], **fields)).json()["choices"]
        ends = {choice["finish_reason"] for choice in choices}
    assert ends == ({"tool_calls", "stop"} if {"n", "best_of"} & fields.keys() else {"tool_calls"})


async def test_a_stop_string_cuts_a_call(client: httpx2.AsyncClient) -> None:
    choice = (await ask(client, "openai", "Oslo", tools=[WEATHER], stop="Oslo")).json()["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"] == OSLO[: OSLO.index("Oslo")]


async def test_log_probabilities_beside_calls(client: httpx2.AsyncClient) -> None:
    """One entry for every token, in streams too."""
    fields = {"tools": [WEATHER], "logprobs": True}
    body = (await ask(client, "openai", "two cities", **fields)).json()
    entries = body["choices"][0]["logprobs"]["content"]
    assert len(entries) == body["usage"]["completion_tokens"]
    chunks = [chunk["choices"][0] for chunk in (await stream(client, "openai", "two cities", **fields))[:-1]]
    assert [entry for one in chunks if one["logprobs"] for entry in one["logprobs"]["content"]] == entries


@pytest.mark.parametrize("fields", [{"n": 2}, {"best_of": 2}])
async def test_several_sequences_at_temperature_0(client: httpx2.AsyncClient, fields: Any) -> None:
    assert (await ask(client, "vllm", "count", temperature=0, **fields)).status_code == 422
    assert len((await ask(client, "openai", "count", temperature=0, **fields)).json()["choices"]) == 2


@pytest.mark.parametrize("dialect", Dialect)
async def test_beam_search_keeps_its_limits(client: httpx2.AsyncClient, dialect: Dialect) -> None:
    for fields in ({"tools": [WEATHER]}, {"stop": "x"}, {"response_format": {"type": "json_object"}}):
        refused = await ask(client, dialect, "count", use_beam_search=True, **fields)
        assert refused.status_code == (422 if dialect is Dialect.VLLM else 400), refused.text


# -------------------------------------------------------------------------------------------------------- D12


@pytest.mark.parametrize(
    ("field", "taken", "refused", "place"),
    [
        ("logit_bias", {"65": -100, "66": 2.5}, {"65": 101}, "logit_bias.65"),
        ("logit_bias", None, {"sixty": 1}, "logit_bias.sixty"),
        ("logit_bias", {}, {"4294967295": 1}, "logit_bias.4294967295"),
        ("parallel_tool_calls", True, "yes", "parallel_tool_calls"),
        ("user", "u-17", 17, "user"),
        ("metadata", {"a": "b"}, {"a": 1}, "metadata.a"),
        ("metadata", None, {str(i): "x" for i in range(17)}, "metadata"),
        ("store", True, 1, "store"),
        ("store", False, "no", "store"),
    ],
)
async def test_fields_that_the_document_has_not(
    client: httpx2.AsyncClient, field: str, taken: Any, refused: Any, place: str
) -> None:
    assert (await ask(client, "openai", "count", **{field: taken})).status_code == 200
    response = await ask(client, "openai", "count", **{field: refused})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == place
    for value in (taken, refused):  # unknown there, so ignored
        assert (await ask(client, "vllm", "count", **{field: value})).status_code == 200


@pytest.mark.parametrize("prompt", ["two cities", "in one token"])
async def test_one_call_at_most(client: httpx2.AsyncClient, live: Live, prompt: str) -> None:
    both = (await ask(client, "openai", prompt, tools=[WEATHER])).json()["choices"][0]
    assert len(both["message"]["tool_calls"]) == 2
    one = (await ask(client, "openai", prompt, tools=[WEATHER], parallel_tool_calls=False)).json()
    choice = one["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == both["message"]["tool_calls"][0]["function"]
    assert choice["message"]["content"] in ("Let me see.\n", None)
    events = await stream(client, "openai", prompt, tools=[WEATHER], parallel_tool_calls=False)
    deltas = [chunk["choices"][0]["delta"] for chunk in events[:-1]]
    calls = [piece for delta in deltas for piece in delta.get("tool_calls", [])]
    assert {piece["index"] for piece in calls} == {0}
    assert json.loads("".join(piece["function"]["arguments"] for piece in calls)) == {"city": "Oslo"}
    assert events[-2]["choices"][0]["finish_reason"] == "tool_calls"
    await eventually(lambda: is_idle(live))


async def test_the_role_developer(client: httpx2.AsyncClient) -> None:
    messages = [{"role": "developer", "content": "Be short."}, {"role": "user", "content": "count"}]
    for dialect in Dialect:
        body = {"model": MODEL, "messages": messages}
        answer = await client.post(CHAT, json=body, headers={HEADER: dialect})
        assert answer.json()["choices"][0]["message"]["content"] == "1 2 3"


async def test_max_completion_tokens(client: httpx2.AsyncClient) -> None:
    for dialect in Dialect:
        answer = (await ask(client, dialect, "count", max_completion_tokens=2, max_tokens=1)).json()
        assert answer["usage"]["completion_tokens"] == 2
