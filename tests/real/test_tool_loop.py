"""Tool loops with a real model that calls functions: ``make test-real`` fetches it (1.1 GB) and runs them.

The server is started as a user starts it, the client is the ``openai`` package. Greedy, so that a run can be repeated;
what is asserted is what an agent needs, not the model's wording."""

from __future__ import annotations

import ast
import json
import operator
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import openai
import pytest

pytestmark = [
    pytest.mark.skipif("MINDSERVE_REAL" not in os.environ, reason="needs 1.1 GB of weights: make test-real"),
    pytest.mark.timeout(3600),
]

_OPERATORS: Final[dict[type, Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
WEATHER: Final = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The current weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Name of the city"}},
            "required": ["city"],
        },
    },
}
CALCULATOR: Final = {
    "type": "function",
    "function": {
        "name": "calculate",
        "description": "Evaluates an arithmetic expression.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string", "description": "for example 2 * (3 + 4)"}},
            "required": ["expression"],
        },
    },
}
TOOLS: Final = [WEATHER, CALCULATOR]
MAX_TURNS: Final = 4
ADVICE: Final = (
    "You are a helpful assistant. Use a function when you need data. When a tool response holds what was asked, "
    "answer the user in a plain sentence."
)
"""Without it this small model calls a function again when it has its answer."""


def get_weather(city: str) -> str:
    return json.dumps({"city": city, "temperature_c": 21, "sky": "clear"})


def calculate(expression: str) -> str:
    def value(node: ast.expr) -> float:
        if isinstance(node, ast.BinOp):
            return float(_OPERATORS[type(node.op)](value(node.left), value(node.right)))
        assert isinstance(node, ast.Constant)
        return float(node.value)

    return json.dumps({"expression": expression, "result": value(ast.parse(expression, mode="eval").body)})


FUNCTIONS: Final[dict[str, Callable[..., str]]] = {"get_weather": get_weather, "calculate": calculate}


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    command = [sys.executable, "-m", "mindserve", "serve", "--model", "qwen2.5-coder-1.5b", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            ready = next((line for line in server.stdout if line.startswith("ready: ")), None)
            assert ready is not None, "the server ended before it was ready"
            url = ready.removeprefix("ready: ").strip()
            with openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=1200, max_retries=0) as opened:
                yield opened
        finally:
            server.terminate()
            server.communicate(timeout=60)


class Turn:
    """One answer of the model, however it came."""

    def __init__(self) -> None:
        self.content = ""
        self.calls: dict[int, dict[str, Any]] = {}
        self.finish: str | None = None

    def add_call(self, index: int, call: Any) -> None:
        kept = self.calls.setdefault(index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        kept["id"] += call.id or ""
        kept["function"]["name"] += call.function.name or ""
        kept["function"]["arguments"] += call.function.arguments or ""

    @property
    def message(self) -> dict[str, Any]:
        told: dict[str, Any] = {"role": "assistant", "content": self.content}
        return told | ({"tool_calls": list(self.calls.values())} if self.calls else {})


def ask(client: openai.OpenAI, messages: list[Any], *, stream: bool, **fields: Any) -> Turn:
    model = client.models.list().data[0].id
    request = {"model": model, "messages": messages, "temperature": 0, "max_tokens": 160, "tools": TOOLS, **fields}
    turn = Turn()
    if not stream:
        (choice,) = client.chat.completions.create(**request).choices
        turn.content, turn.finish = choice.message.content or "", choice.finish_reason
        for index, call in enumerate(choice.message.tool_calls or []):
            turn.add_call(index, call)
        return turn
    for chunk in client.chat.completions.create(**request, stream=True):
        for choice in chunk.choices:
            turn.content += choice.delta.content or ""
            turn.finish = choice.finish_reason or turn.finish
            for call in choice.delta.tool_calls or []:
                turn.add_call(call.index, call)
    return turn


def run(client: openai.OpenAI, question: str, *, stream: bool, choice: Any = "auto") -> tuple[list[Any], str]:
    """Answer the model's calls until it answers itself: the calls it made, and its last text."""
    messages: list[Any] = [{"role": "system", "content": ADVICE}, {"role": "user", "content": question}]
    made: list[Any] = []
    for _ in range(MAX_TURNS):
        turn = ask(client, messages, stream=stream, tool_choice=choice)
        choice = "auto"  # an enforced call is the first step only
        messages.append(turn.message)
        if turn.finish != "tool_calls":
            return made, turn.content
        for call in turn.calls.values():
            name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
            made.append((name, arguments))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": FUNCTIONS[name](**arguments)})
    return made, ""


MODES = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


@MODES
@pytest.mark.parametrize("choice", ["auto", "required", named("get_weather")], ids=["auto", "required", "named"])
def test_weather(client: openai.OpenAI, choice: Any, stream: bool) -> None:
    made, text = run(client, "What is the weather in Oslo right now?", stream=stream, choice=choice)
    assert made[0] == ("get_weather", {"city": "Oslo"})
    assert "21" in text or "clear" in text.lower()


@MODES
@pytest.mark.parametrize("choice", ["auto", "required", named("calculate")], ids=["auto", "required", "named"])
def test_calculator(client: openai.OpenAI, choice: Any, stream: bool) -> None:
    made, text = run(client, "Use the calculator: what is 123 * 45?", stream=stream, choice=choice)
    assert made[0][0] == "calculate"
    assert "5535" in text.replace(",", "")


BOTH: Final = "Tell me the weather in Oslo, and calculate 17 * 3. Call both tools at once."


@MODES
@pytest.mark.parametrize("choice", ["auto", "required"])
def test_two_tools_in_one_turn(client: openai.OpenAI, choice: str, stream: bool) -> None:
    messages = [{"role": "system", "content": ADVICE}, {"role": "user", "content": BOTH}]
    turn = ask(client, messages, stream=stream, tool_choice=choice)
    made = {call["function"]["name"]: json.loads(call["function"]["arguments"]) for call in turn.calls.values()}
    assert made == {"get_weather": {"city": "Oslo"}, "calculate": {"expression": "17 * 3"}}
    assert turn.finish == "tool_calls"


@MODES
def test_two_named_tools_in_two_turns(client: openai.OpenAI, stream: bool) -> None:
    """A name binds the turn to one call of it, so both take a turn each."""
    messages: list[Any] = [{"role": "system", "content": ADVICE}, {"role": "user", "content": BOTH}]
    for name, arguments in (("get_weather", {"city": "Oslo"}), ("calculate", {"expression": "17 * 3"})):
        turn = ask(client, messages, stream=stream, tool_choice=named(name))
        (call,) = turn.calls.values()
        assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == (name, arguments)
        messages += [
            turn.message,
            {"role": "tool", "tool_call_id": call["id"], "content": FUNCTIONS[name](**arguments)},
        ]
    answer = ask(client, messages, stream=stream, tool_choice="none")
    assert answer.finish == "stop"
    assert "51" in answer.content
