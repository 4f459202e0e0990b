"""Types, bounds, nulls and defaults of request fields, from a table written by hand from the document.

The table is an oracle of its own: nothing in it is read from the contract. Each row gives values just inside and just
outside what the document (or the reading named beside it) allows.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import pytest

UP, DOWN = math.inf, -math.inf
INT32_MAX = 2**31 - 1
ABSENT = object()

BASE: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": "u"}}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "42"},
        {
            "role": "user",
            "content": [
                {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                {"type": "video_url", "video_url": "u"},
                {"type": "audio_url", "audio_url": "u"},
            ],
        },
    ],
}
TOOL = {
    "type": "function",
    "function": {"name": "f", "strict": False, "description": "d", "parameters": {"type": "object", "properties": {}}},
}
WITH_TOOLS: dict[str, Any] = {**BASE, "tools": [TOOL]}

# Values that are never numbers, strings or booleans: a row below names which kind it is about.
NOT_A_NUMBER = ["1", True, [], {}]
NOT_AN_INTEGER = [*NOT_A_NUMBER, 1.5]
NOT_A_BOOLEAN = ["true", 0, 1, 1.0, [], {}]
NOT_A_STRING = [1, 1.0, True, [], {}]


@dataclass(frozen=True)
class Row:
    """One field: `path` from the body, what is accepted and refused there, and the document's line."""

    line: int
    path: tuple[str | int, ...]
    accepted: list[Any]
    refused: list[Any]
    null: bool = True
    required: bool = False
    default: Any = ABSENT
    body: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        return ".".join(map(str, self.path))


PENALTY: dict[str, Any] = {
    "accepted": [-2.0, -2, 0, 2, 2.0, 0.5],
    "refused": [math.nextafter(-2.0, DOWN), math.nextafter(2.0, UP), -3, *NOT_A_NUMBER],
    "default": 0.0,
}
SWITCH: dict[str, Any] = {"accepted": [True, False], "refused": NOT_A_BOOLEAN}
COUNT: dict[str, Any] = {"accepted": [1, 128, 2.0], "refused": [0, 129, -1, *NOT_AN_INTEGER], "default": 1}
TEXT: dict[str, Any] = {"accepted": ["x", "中"], "refused": NOT_A_STRING}
MANDATORY: dict[str, Any] = {"null": False, "required": True}
PART, CALL, FUNCTION = ("messages", 0, "content"), ("messages", 1, "tool_calls", 0), ("tools", 0, "function")
AUDIO = ("messages", 3, "content", 0, "input_audio")

ROWS = [
    Row(26, ("model",), refused=["", *NOT_A_STRING], accepted=["m"], **MANDATORY),
    Row(27, ("messages",), [BASE["messages"], BASE["messages"] * 4096],
        [[], "hi", {}, [None], ["hi"], BASE["messages"] * 4097], **MANDATORY),  # C24
    Row(28, ("messages", 0, "role"), ["user", "system", "x" * 64], ["", "x" * 65, *NOT_A_STRING], **MANDATORY),
    Row(29, PART, ["x", [{"type": "text", "text": "x"}]], ["", [], 1, True, {}, [None], ["x"]], **MANDATORY),
    Row(30, (*PART, 0, "type"), ["text"], ["", "txt", "image", 1, True], **MANDATORY),
    Row(31, (*PART, 0, "text"), ["x"], ["", *NOT_A_STRING], **MANDATORY),
    Row(32, (*PART, 1, "image_url"), ["u", {"url": "u"}], ["", {}, {"url": ""}, {"url": None}, 1, []], **MANDATORY),
    Row(33, ("messages", 3, "content", 1, "video_url"), ["u", {"url": "u"}], ["", {}, 1], **MANDATORY),
    Row(34, ("messages", 3, "content", 2, "audio_url"), ["u", {"url": "u"}], ["", {}, 1], **MANDATORY),
    Row(35, AUDIO, [{"data": "A", "format": "mp3"}], ["A", {}, {"data": "A"}, {"format": "wav"}], **MANDATORY),
    Row(36, (*AUDIO, "data"), ["A"], ["", *NOT_A_STRING], **MANDATORY),
    Row(37, (*AUDIO, "format"), ["mp3", "wav", "flac", "MP3"], ["", "ogg", "Wav", 1], **MANDATORY),
    Row(38, ("messages", 0, "tool_calls"), [[], BASE["messages"][1]["tool_calls"]], [{}, "f", [None], [{}]]),
    Row(39, (*CALL, "function"), [{"name": "f", "arguments": {"a": 1}}, {"name": "f"}], ["f", {}, {"arguments": "{}"}],
        **MANDATORY),
    Row(39, (*CALL, "function", "arguments"), ["{}", "", {}], [1, True, []]),
    Row(39, (*CALL, "function", "name"), **TEXT, **MANDATORY),
    Row(40, (*CALL, "id"), **TEXT, **MANDATORY),
    Row(41, (*CALL, "type"), ["function"], ["", "Function", "tool", 1], **MANDATORY),
    Row(42, ("messages", 2, "tool_call_id"), **TEXT, **MANDATORY),
    Row(42, ("messages", 0, "tool_call_id"), **TEXT),
    Row(43, ("stream",), **SWITCH, default=False),
    Row(44, ("presence_penalty",), **PENALTY),
    Row(45, ("frequency_penalty",), **PENALTY),
    Row(46, ("repetition_penalty",), [math.nextafter(0.0, UP), 1, 2, 2.0],
        [0, 0.0, -0.1, math.nextafter(2.0, UP), *NOT_A_NUMBER], default=1.0),
    Row(47, ("temperature",), [0, 0.0, 0.001, 1e300], [math.nextafter(0.0, DOWN), -1, *NOT_A_NUMBER], default=1.0),
    Row(48, ("top_p",), [math.nextafter(1e-6, UP), 0.5, 1, 1.0],
        [1e-6, 0, -0.5, math.nextafter(1.0, UP), *NOT_A_NUMBER], default=1.0),
    Row(49, ("top_k",), [-1, 1, INT32_MAX, 5.0], [0, -2, INT32_MAX + 1, *NOT_AN_INTEGER]),  # R4
    Row(50, ("seed",), [0, 2**53 + 1, 2**63, 2**64 - 1], [-1, 2**64, *NOT_AN_INTEGER]),
    Row(51, ("stop",), ["x", "x" * 32768, [], ["x"], ["x" * 32768]], ["", "x" * 32769, [""], [None], [1], 1, {}],
        default=None),
    Row(52, ("stop_token_ids",), [[], [2, 13], ["x", 1.5, True, 2**40], [1] * 16384],
        [[None], [1, None], "1", 1, {}, [1] * 16385], default=None),  # C24
    Row(53, ("include_stop_str_in_output",), **SWITCH, default=False),
    Row(54, ("skip_special_tokens",), **SWITCH, default=True),
    Row(55, ("ignore_eos",), **SWITCH, default=False),
    Row(56, ("max_tokens",), [1, INT32_MAX, 1.0], [0, -1, INT32_MAX + 1, *NOT_AN_INTEGER]),
    Row(56, ("max_completion_tokens",), [1, INT32_MAX], [0, INT32_MAX + 1, *NOT_AN_INTEGER]),  # R23
    Row(57, ("use_beam_search",), **SWITCH, default=False),
    Row(58, ("best_of",), **COUNT),
    Row(59, ("n",), **COUNT),
    Row(60, ("logprobs",), **SWITCH, default=False),
    Row(61, ("top_logprobs",), [0, 20, 1.0], [-1, 21, *NOT_AN_INTEGER], default=0),
    Row(62, ("chat_template_kwargs",), [{}, {"a": "b", "c": 1, "d": True}], ["x", 1, [], {"a": []}, {"messages": "x"}]),
    Row(63, ("chat_template_kwargs",), [{"enable_thinking": True}, {"enable_thinking": None}],
        [{"enable_thinking": value} for value in NOT_A_BOOLEAN]),
    Row(64, ("tools",), [[], [TOOL]], ["f", {}, [None], [{}]], default=None),
    Row(65, ("tools", 0, "type"), ["function"], ["", "retrieval", 1], **MANDATORY, body=WITH_TOOLS),
    Row(66, FUNCTION, [{"name": "f"}], ["f", {}], **MANDATORY, body=WITH_TOOLS),
    Row(67, (*FUNCTION, "name"), ["f"], ["", *NOT_A_STRING], **MANDATORY, body=WITH_TOOLS),
    Row(68, (*FUNCTION, "strict"), **SWITCH, default=False, body=WITH_TOOLS),
    Row(69, (*FUNCTION, "description"), ["", "d"], NOT_A_STRING, body=WITH_TOOLS),
    Row(70, (*FUNCTION, "parameters"), [{}, {"$defs": {}}], ["x", 1, []], body=WITH_TOOLS),
    Row(71, (*FUNCTION, "parameters", "type"), ["object"], NOT_A_STRING, body=WITH_TOOLS),
    Row(72, (*FUNCTION, "parameters", "properties"), [{}, {"a": {"type": "string"}}], ["x", [], {"a": "string"}],
        body=WITH_TOOLS),
    Row(73, (*FUNCTION, "parameters", "required"), [[], ["a"]], ["a", {}, [1], [None]], body=WITH_TOOLS),
    Row(74, (*FUNCTION, "parameters", "additionalProperties"), [True, False, {}], ["false", 0, []], default=False,
        body=WITH_TOOLS),
    Row(75, ("tool_choice",), ["none", "auto", "required", {"type": "function", "function": {"name": "f"}}],
        ["", "any", True, {}, {"type": "function"}, {"type": "function", "function": {"name": ""}}], default="auto",
        body=WITH_TOOLS),
]  # fmt: skip


def _place(body: dict[str, Any], path: tuple[str | int, ...]) -> Any:
    target: Any = body
    for step in path[:-1]:
        target = target[step]
    return target


def _with(row: Row, value: Any) -> dict[str, Any]:
    body = copy.deepcopy(row.body or BASE)
    _place(body, row.path)[row.path[-1]] = copy.deepcopy(value)
    return body


def _without(row: Row) -> dict[str, Any]:
    body = copy.deepcopy(row.body or BASE)
    _place(body, row.path).pop(row.path[-1], None)
    return body


def _cases(which: str) -> list[Any]:
    return [
        pytest.param(row, value, id=f"{row.line}-{row.name}-{str(value)[:24]!r}-{number}")
        for row in ROWS
        for number, value in enumerate(getattr(row, which))
    ]


def test_every_line_of_the_request_table_has_a_row() -> None:
    assert {row.line for row in ROWS} == set(range(26, 76))


def test_the_bodies_the_rows_change_are_valid(request_validator: Any) -> None:
    assert request_validator.is_valid(BASE)
    assert request_validator.is_valid(WITH_TOOLS)


@pytest.mark.parametrize(("row", "value"), _cases("accepted"))
def test_accepted(request_validator: Any, row: Row, value: Any) -> None:
    assert request_validator.is_valid(_with(row, value))


@pytest.mark.parametrize(("row", "value"), _cases("refused"))
def test_refused(request_validator: Any, row: Row, value: Any) -> None:
    assert not request_validator.is_valid(_with(row, value))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.line}-{row.name}")
def test_null_and_absence(request_validator: Any, row: Row) -> None:
    assert request_validator.is_valid(_with(row, None)) is row.null
    assert request_validator.is_valid(_without(row)) is not row.required


def _documented_default(schemas: dict[str, Any], row: Row) -> Any:
    """The `default` keyword at the row's field."""
    is_of_function = row.path[:3] == FUNCTION
    field: Any = schemas["FunctionDefinition" if is_of_function else "ChatCompletionRequest"]
    for name in row.path[3:] if is_of_function else row.path:
        field = (field.get("then") or field)["properties"][name]
    return field.get("default", ABSENT)


OPTIONAL = [row for row in ROWS if not row.required and row.path[0] != "messages"]


@pytest.mark.parametrize("row", OPTIONAL, ids=lambda row: f"{row.line}-{row.name}")
def test_defaults(schemas: dict[str, Any], row: Row) -> None:
    assert _documented_default(schemas, row) == row.default


def test_audio_data_is_limited_to_20_megabytes(schemas: dict[str, Any]) -> None:
    assert schemas["InputAudio"]["properties"]["data"]["maxLength"] == 4 * math.ceil(20 * 1024 * 1024 / 3)


def test_unknown_fields_are_ignored_at_every_level(request_validator: Any) -> None:
    """R2."""
    body = copy.deepcopy(WITH_TOOLS)
    first, call, tool = body["messages"][0], body["messages"][1]["tool_calls"][0], body["tools"][0]
    parts = [*first["content"], first["content"][1]["image_url"]]
    for place in [body, first, *parts, call, call["function"], tool, tool["function"], tool["function"]["parameters"]]:
        place["x_unknown"] = {"anything": [1, None]}
    assert request_validator.is_valid(body)
