from __future__ import annotations

from typing import Any

import pytest

from mindserve.chat.conversation import to_conversation


def convert(*messages: dict[str, Any], knows_developer: bool = False, as_text: bool = False) -> list[dict[str, Any]]:
    return to_conversation(list(messages), knows_developer=knows_developer, arguments_as_text=as_text)


def call(arguments: Any, **fields: Any) -> dict[str, Any]:
    tool_call = {"type": "function", "function": {"name": "f", "arguments": arguments}, **fields}
    return {"role": "assistant", "content": None, "tool_calls": [tool_call]}


def arguments_of(message: dict[str, Any], *, as_text: bool = False) -> Any:
    return convert(message, as_text=as_text)[0]["tool_calls"][0]["function"]["arguments"]


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_text_parts_are_joined_without_a_separator(role: str) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": ""}, {"type": "text", "text": " b", "image": "x"}]
    assert convert({"role": role, "content": parts}) == [{"role": role, "content": "a b"}]


def test_null_content_is_empty() -> None:
    assert convert(call("{}"))[0]["content"] == ""
    assert convert({"role": "assistant"})[0]["content"] == ""


def test_developer_is_system_unless_the_template_knows_it() -> None:
    message = {"role": "developer", "content": "x"}
    assert convert(message)[0]["role"] == "system"
    assert convert(message, knows_developer=True)[0]["role"] == "developer"


@pytest.mark.parametrize("calls", [None, []])
def test_no_tool_calls_are_none(calls: object) -> None:
    assert convert({"role": "assistant", "content": "x", "tool_calls": calls}) == [
        {"role": "assistant", "content": "x"}
    ]


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [
        ('{"city": "北京", "n": 1.0}', {"city": "北京", "n": 1.0}),
        ("", {}),
        (" ", {}),
        (None, {}),
        ({"a": [1]}, {"a": [1]}),
    ],
)
def test_arguments_are_parsed(arguments: Any, parsed: dict[str, Any]) -> None:
    assert arguments_of(call(arguments)) == parsed


def test_arguments_are_json_text_for_templates_that_want_it() -> None:
    assert arguments_of(call({"city": "北京"}), as_text=True) == '{"city": "北京"}'
    assert arguments_of(call('{"a":1}'), as_text=True) == '{"a": 1}'
    assert arguments_of(call(""), as_text=True) == "{}"


def test_only_fields_that_templates_read_pass() -> None:
    message = {
        "role": "tool",
        "content": "x",
        "tool_call_id": "c",
        "name": "f",
        "refusal": None,
        "audio": {},
        "id": "m",
    }
    assert convert(message) == [{"role": "tool", "content": "x", "tool_call_id": "c", "name": "f"}]
    assert convert(call("{}", id="call_1", index=0))[0]["tool_calls"] == [
        {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": {}}}
    ]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_passes_under_the_names_templates_read(name: str) -> None:
    message = convert({"role": "assistant", "content": "x", name: "because"})[0]
    assert (message["reasoning_content"], message["thinking"]) == ("because", "because")
