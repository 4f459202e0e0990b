"""Tool calls and reasoning over HTTP: what clients build on them, whole and as a stream.

The names of cases tell the kind of fault that clients of such servers have met.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from mindserve.chat.tokenizer import load_tokenizer
from mindserve.config.settings import Dialect, ModelTypeSettings, ServeSettings
from mindserve_engine.native.process import NativeEngine
from mindserve_engine.options import EngineOptions
from tests.qwen import write_tiny_qwen
from tests.serving import MODEL, Live, Model, chat_body, post_chat, running, scripted_model
from tests.tool_replies import NOW, OSLO, REPLIES, WEATHER, call_text


@pytest.fixture
async def live(caller: Model) -> AsyncIterator[Live]:
    async with running(caller) as started:
        yield started


def asking(text: str, **fields: Any) -> dict[str, Any]:
    return chat_body(messages=[{"role": "user", "content": text}], **{"tools": [WEATHER, NOW], **fields})


def joined(text: str) -> dict[str, Any]:
    """A stream's message put together as clients do it, with the finish reason and the usage."""
    *events, done, rest = text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    message: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": []}
    ends = []
    usage = None
    for event in events:
        chunk = json.loads(event.removeprefix("data: "))
        (choice,) = chunk["choices"]
        ends.append(choice["finish_reason"])
        usage = chunk.get("usage", usage)
        delta = choice["delta"]
        assert delta.pop("role") == "assistant"
        assert len(delta) == 1, "one kind of thing in a delta"
        assert None not in delta.values()
        for key in ("content", "reasoning_content"):
            if key in delta:
                message[key] = message.get(key, "") + delta[key]
        for piece in delta.get("tool_calls", ()):
            _join_call(message["tool_calls"], piece)
    assert [end for end in ends if end is not None] == ends[-1:]
    return {"message": message, "finish_reason": ends[-1], "usage": usage}


def _join_call(calls: list[dict[str, Any]], piece: dict[str, Any]) -> None:
    index = piece.pop("index")
    if index == len(calls):
        assert piece.keys() == {"id", "type", "function"}
        assert piece["function"].keys() == {"name", "arguments"}
        assert piece["function"]["arguments"] == ""
        calls.append(piece)
    else:
        assert index == len(calls) - 1
        assert piece.keys() == {"function"}
        assert piece["function"].keys() == {"arguments"}
        calls[index]["function"]["arguments"] += piece["function"]["arguments"]


async def both(live: Live, body: dict[str, Any]) -> dict[str, Any]:
    """The whole answer's choice; the stream must say the same."""
    whole = (await post_chat(live, body)).json()
    choice = whole["choices"][0]
    stream = joined((await post_chat(live, {**body, "stream": True})).text)
    said = json.loads(json.dumps(choice["message"]))
    for call in [*said["tool_calls"], *stream["message"]["tool_calls"]]:
        identifier = call.pop("id")
        assert identifier.startswith("call_")
        assert len(identifier) >= 13
        assert identifier.isascii()
    assert stream["message"] == said
    assert stream["finish_reason"] == choice["finish_reason"]
    for key in ("prompt_tokens", "completion_tokens", "completion_tokens_details"):
        assert stream["usage"].get(key) == whole["usage"].get(key)
    return {**choice["message"], "finish_reason": choice["finish_reason"], "usage": whole["usage"]}


CASES: dict[str, tuple[str, str, list[tuple[str, str]], str]] = {
    "arguments are JSON text": ("Oslo", "", [("get_weather", '{"city": "Oslo"}')], "tool_calls"),
    "no arguments are {}": ("time", "", [("now", "{}")], "tool_calls"),
    "several calls, other alphabets": (
        "two cities",
        "Let me see.\n",
        [("get_weather", '{"city": "Oslo"}'), ("get_weather", '{"city": "北京"}')],
        "tool_calls",
    ),
    "everything in one token": (
        "in one token",
        "Now:  done",
        [("get_weather", '{"city": "Oslo"}'), ("get_weather", '{"city": "北京"}')],
        "tool_calls",
    ),
    "malformed calls are content": ("broken", "<tool_call>{'name': 1}</tool_call>", [], "stop"),
    "unknown tools are content": ("unknown", call_text("launch", "{}"), [], "stop"),
    "a call that is cut does not run": ("cut", OSLO[:-20], [], "length"),
    "the last piece is held back": ("swallowed", "ok\n<tool_call>", [], "stop"),
    "no call at all": ("hello", "Hello.", [], "stop"),
}


@pytest.mark.parametrize("name", CASES)
async def test_calls(live: Live, name: str) -> None:
    question, content, calls, finish_reason = CASES[name]
    answer = await both(live, asking(question))
    assert answer["content"] == content
    assert [(call["function"]["name"], call["function"]["arguments"]) for call in answer["tool_calls"]] == calls
    assert answer["finish_reason"] == finish_reason
    assert "completion_tokens_details" not in answer["usage"]


async def test_names_of_calls_are_unique(live: Live) -> None:
    answers = [(await post_chat(live, asking("two cities"))).json() for _ in range(5)]
    names = [call["id"] for answer in answers for call in answer["choices"][0]["message"]["tool_calls"]]
    assert len(set(names)) == 10


async def test_without_tools_nothing_is_a_call(live: Live) -> None:
    for fields in ({"tool_choice": "none"}, {"tools": []}, {"tools": None}):
        answer = await both(live, asking("Oslo", **fields))
        assert (answer["content"], answer["tool_calls"], answer["finish_reason"]) == (OSLO, [], "stop")


ABSENT = object()


@pytest.mark.parametrize("arguments", ['{"city": "Oslo"}', {"city": "Oslo"}, "", None, ABSENT])
@pytest.mark.parametrize("content", [None, "", "Let me see."])
async def test_results_are_sent_back(live: Live, arguments: object, content: str | None) -> None:
    function = {"name": "get_weather"} | ({} if arguments is ABSENT else {"arguments": arguments})
    call = {"id": "call_1", "type": "function", "function": function}
    turns = [
        {"role": "user", "content": "How is it there?"},
        {"role": "assistant", "content": content, "tool_calls": [call], "reasoning_content": "why"},
        {"role": "tool", "tool_call_id": "call_1", "content": "21 degrees"},
    ]
    assert (await both(live, chat_body(messages=turns, tools=[WEATHER])))["content"] == "It is 21 degrees."


async def test_a_model_that_calls_no_tools_says_so(tmp_path: Path) -> None:
    template = "{% for message in messages %}{{ message.content }}{% endfor %}{{ tools }}"
    async with running(scripted_model(tmp_path, {"replies": REPLIES, "chat_template": template})) as live:
        refused = await post_chat(live, asking("hello"))
        assert refused.status_code == 422
        assert refused.json()["error"].startswith("tools: ")
        assert (await post_chat(live, asking("hello", tool_choice="none"))).status_code == 200


async def test_the_operator_names_the_parser(caller: Model) -> None:
    types = {"scripted": ModelTypeSettings(tool_call_parser="glm_4")}
    async with running(caller, ServeSettings(model_name=MODEL, model_types=types)) as live:
        assert (await both(live, asking("Oslo")))["content"] == OSLO


THOUGHTS: dict[str, tuple[str, dict[str, Any], dict[str, Any], int]] = {
    "only the closing tag comes": ("ponder", {}, {"content": "\n\nYes.", "reasoning_content": "Because."}, 4),
    "thinking is switched off": (
        "hello", {"chat_template_kwargs": {"enable_thinking": False}}, {"content": "Hello."}, 0,
    ),
    "the limit comes first": ("muse", {}, {"content": "", "reasoning_content": "still thinking"}, 2),
    "a stop text inside": (
        "ponder", {"stop": "cause", "tools": None}, {"content": "", "reasoning_content": "Because"}, 2,
    ),
    "a stop text behind": (
        "ponder", {"stop": ["s."], "tools": None}, {"content": "\n\nYe", "reasoning_content": "Because."}, 4,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", THOUGHTS)
async def test_reasoning(thinker: Model, name: str) -> None:
    question, fields, said, num_reasoning = THOUGHTS[name]
    async with running(thinker) as live:
        answer = await both(live, asking(question, **fields))
    assert {key: answer[key] for key in ("content", "reasoning_content") if key in answer} == said
    assert answer["usage"]["completion_tokens_details"] == {"reasoning_tokens": num_reasoning}


async def test_calls_come_behind_the_reasoning(thinker: Model) -> None:
    async with running(thinker) as live:
        answer = await both(live, asking("ponder then call"))
    assert (answer["reasoning_content"], answer["content"]) == ("I need it.", "")
    assert answer["tool_calls"][0]["function"] == {"arguments": '{"city": "Oslo"}', "name": "get_weather"}
    assert answer["finish_reason"] == "tool_calls"


async def test_calls_are_told_where_thinking_is_switched_off(thinker: Model) -> None:
    async with running(thinker) as live:
        answer = await both(live, asking("Oslo", chat_template_kwargs={"enable_thinking": False}))
    assert "reasoning_content" not in answer
    assert answer["tool_calls"][0]["function"] == {"arguments": '{"city": "Oslo"}', "name": "get_weather"}
    assert answer["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_thoughts_that_are_sent_back_reach_the_template(thinker: Model, name: str) -> None:
    """Under either name (reading C3); the script answers so only where it is given them."""
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    turns = [
        {"role": "user", "content": "How is it there?"},
        {"role": "assistant", "content": None, "tool_calls": [call], name: "I need it."},
        {"role": "tool", "tool_call_id": "call_1", "content": "21 degrees"},
    ]
    async with running(thinker) as live:
        answer = await both(live, chat_body(messages=turns, tools=[WEATHER]))
    assert answer["content"].strip() == "As I thought."


async def test_reasoning_goes_with_several_sequences_and_log_probabilities(thinker: Model) -> None:
    body = asking("ponder", tools=None, n=2, logprobs=True, top_logprobs=1)
    async with running(thinker) as live:
        whole = (await post_chat(live, body)).json()
        streamed = (await post_chat(live, {**body, "stream": True})).text
    assert [choice["message"]["reasoning_content"] for choice in whole["choices"]] == ["Because."] * 2
    assert whole["usage"]["completion_tokens_details"] == {"reasoning_tokens": 8}
    entries: list[list[str]] = [[], []]
    for event in streamed.split("\n\n")[:-2]:
        choice = json.loads(event.removeprefix("data: "))["choices"][0]
        entries[choice["index"]] += [one["token"] for one in (choice["logprobs"] or {"content": []})["content"]]
    assert entries == [[one["token"] for one in choice["logprobs"]["content"]] for choice in whole["choices"]]


async def test_the_operator_leaves_reasoning_in_the_content(thinker: Model) -> None:
    types = {"Scripted": ModelTypeSettings(enable_reasoning=False)}
    async with running(thinker, ServeSettings(model_name=MODEL, model_types=types)) as live:
        answer = await both(live, asking("ponder"))
    assert answer["content"] == "Because.</think>\n\nYes."
    assert "completion_tokens_details" not in answer["usage"]


async def test_cumulative_streams_keep_reasoning_apart(thinker: Model) -> None:
    async with running(thinker, ServeSettings(model_name=MODEL, full_text_enabled=True)) as live:
        streamed = (await post_chat(live, asking("ponder", stream=True))).text
    chunks = [json.loads(event.removeprefix("data: ")) for event in streamed.split("\n\n")[:-2]]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Because."
    assert [delta["content"] for delta in deltas if "content" in delta][-3:] == ["\n\nYes", "\n\nYes.", "\n\nYes."]
    assert chunks[-1]["full_text"] == "\n\nYes."


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_tool_loop_of_the_openai_package(caller: Model, dialect: Dialect, *, stream: bool) -> None:
    tools: list[Any] = [WEATHER, NOW]
    messages: list[Any] = [{"role": "user", "content": "How warm is Oslo?"}]
    async with (
        running(caller, ServeSettings(model_name=MODEL, dialect=dialect)) as live,
        openai.AsyncOpenAI(base_url=f"{live.url}/v1", api_key="any", max_retries=0) as client,
    ):
        for _ in range(3):
            if stream:
                async with client.chat.completions.stream(model=MODEL, messages=messages, tools=tools) as events:
                    answer: Any = await events.get_final_completion()
            else:
                answer = await client.chat.completions.create(model=MODEL, messages=messages, tools=tools)
            message = answer.choices[0].message
            # The package joins the roles of deltas: "assistantassistant...".
            messages.append({**message.model_dump(exclude_unset=True), "role": "assistant"})
            if answer.choices[0].finish_reason != "tool_calls":
                break
            for call in message.tool_calls:
                assert json.loads(call.function.arguments) == {"city": "Oslo"}
                messages.append({"role": "tool", "tool_call_id": call.id, "content": "21 degrees"})
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[-1]["content"] == "It is 21 degrees."


async def test_a_real_template_over_random_weights(tmp_path: Path) -> None:
    """Whatever such a model says, it is an answer."""
    folder = write_tiny_qwen(tmp_path / "model")
    options = EngineOptions(model_path=folder, dtype="float32", num_threads=1, kv_memory_gb=0.05, block_size=16)
    async with running(Model(NativeEngine(options), load_tokenizer(folder))) as live:
        bodies = [asking("Oslo?", seed=seed, max_tokens=24, temperature=1.5) for seed in range(4)]
        answers = [await both(live, body) for body in bodies]
    assert {answer["finish_reason"] for answer in answers} <= {"stop", "length", "tool_calls"}
    assert all(answer["content"] or answer["tool_calls"] or answer["finish_reason"] == "stop" for answer in answers)


async def test_a_call_is_sent_when_it_is_complete(live: Live) -> None:
    """The engine hangs in the second call; the client has the first one."""
    async with (
        httpx2.AsyncClient(base_url=live.url, timeout=30) as client,
        client.stream("POST", "/v1/chat/completions", json=asking("half way", stream=True)) as response,
    ):
        lines = response.aiter_lines()
        while "arguments" not in (line := await anext(lines)) or '"id":"call_' in line:
            pass
    delta = json.loads(line.removeprefix("data: "))["choices"][0]["delta"]
    assert delta["tool_calls"] == [{"index": 0, "function": {"arguments": '{"city": "Oslo"}'}}]
