"""What an answer may look like: a full body and a full chunk pass; each change that breaks a table fails."""

from __future__ import annotations

import copy
from typing import Any

import pytest

GONE = object()

LOGPROBS = {
    "content": [
        {
            "token": "é",
            "logprob": -0.5,
            "bytes": [195, 169],
            "top_logprobs": [{"token": "", "logprob": -9999.0, "bytes": [195]}],
        }
    ]
}
USAGE = {
    "prompt_tokens": 9,
    "prompt_tokens_details": {"cached_tokens": 0},
    "completion_tokens": 2,
    "completion_tokens_details": {"reasoning_tokens": 1},
    "total_tokens": 11,
    "batch_size": [1, 2],
    "queue_wait_time": [5149, 0],
}
BODY: dict[str, Any] = {
    "id": "endpoint_common_0",
    "object": "chat.completion",
    "created": 1677652288,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "",
                "reasoning_content": "so",
                "tool_calls": [
                    {"function": {"arguments": "{}", "name": "f"}, "id": "call_0a1B2c3D", "type": "function"}
                ],
            },
            "logprobs": LOGPROBS,
            "finish_reason": "tool_calls",
        }
    ],
    "usage": USAGE,
    "prefill_time": 200,
    "decode_time_arr": [28],
}
CHUNK: dict[str, Any] = {
    "id": "endpoint_common_12",
    "object": "chat.completion.chunk",
    "created": 1677652288,
    "model": "m",
    "full_text": "so",
    "usage": USAGE,
    "choices": [
        {
            "index": 1,
            "delta": {
                "role": "assistant",
                "content": "so",
                "reasoning_content": "",
                "tool_calls": [
                    {
                        "index": 0,
                        "id": "call_0a1B2c3D",
                        "type": "function",
                        "function": {"name": "f", "arguments": ""},
                    }
                ],
            },
            "logprobs": LOGPROBS,
            "finish_reason": "stop",
        }
    ],
}
PLACES = {
    "body": (),
    "choice": ("choices", 0),
    "message": ("choices", 0, "message"),
    "delta": ("choices", 0, "delta"),
    "call": ("choices", 0, "message", "tool_calls", 0),
    "piece": ("choices", 0, "delta", "tool_calls", 0),
    "token": ("choices", 0, "logprobs", "content", 0),
    "candidate": ("choices", 0, "logprobs", "content", 0, "top_logprobs", 0),
    "usage": ("usage",),
}
COUNTS = [-1, 1.5, None, "1", GONE]

# place, key, values that may not stand there (GONE: the key may not be missing)
BOTH: list[tuple[str, str, list[Any]]] = [
    ("body", "id", ["llama3-70b", "endpoint_common_", "endpoint_common_1x", 1, None, GONE]),
    ("body", "created", [-5, 1.5, "1677652288", None, GONE]),
    ("body", "model", [None, 1, GONE]),
    ("body", "choices", [None, {}, GONE]),
    ("choice", "index", [-1, 128, None, GONE]),
    ("choice", "logprobs", [[], {}, {"content": None}, False, GONE]),
    ("token", "token", [None, GONE]),
    ("token", "logprob", [-9999.5, None, "x", GONE]),
    ("token", "bytes", [[256], [-1], None, "é", GONE]),
    ("token", "top_logprobs", [[LOGPROBS["content"][0]["top_logprobs"][0]] * 21, None, [{}], GONE]),
    ("candidate", "token", [None, GONE]),
    ("candidate", "logprob", [-10000, None, GONE]),
    ("candidate", "bytes", [[256], None, GONE]),
    ("usage", "prompt_tokens", COUNTS),
    ("usage", "prompt_tokens_details", [{}, {"cached_tokens": -1}, None, GONE]),
    ("usage", "completion_tokens", COUNTS),
    ("usage", "completion_tokens_details", [{}, {"reasoning_tokens": -1}, None]),
    ("usage", "total_tokens", COUNTS),
    ("usage", "batch_size", [[0], [1.5], None, 1, GONE]),
    ("usage", "queue_wait_time", [[-1], [0.5], None, GONE]),
]
WHOLE: list[tuple[str, str, list[Any]]] = [
    ("body", "object", ["chat.completion.chunk", None, GONE]),
    ("body", "choices", [[]]),
    ("body", "usage", [None, GONE]),
    ("body", "prefill_time", [-1, "200", None, GONE]),
    ("body", "decode_time_arr", [[-1], [None], None, GONE]),
    ("choice", "message", [None, {}, GONE]),
    ("choice", "finish_reason", [None, "", "error", "content_filter", GONE]),
    ("message", "role", ["user", None, GONE]),
    ("message", "content", [None, [], GONE]),
    ("message", "reasoning_content", [None]),
    ("message", "tool_calls", [None, {}, GONE]),
    ("call", "id", ["1", "call_short", None, GONE]),
    ("call", "type", ["tool", None, GONE]),
    ("call", "function", [{"name": "f"}, {"name": "f", "arguments": {}}, {"arguments": "{}"}, None, GONE]),
]
STREAMED: list[tuple[str, str, list[Any]]] = [
    ("body", "object", ["chat.completion", None, GONE]),
    ("body", "choices", [CHUNK["choices"] * 2]),
    ("body", "usage", [None, {}]),
    ("body", "full_text", [None]),
    ("choice", "delta", [None, {}, GONE]),
    ("choice", "finish_reason", ["", "error", GONE]),
    ("delta", "role", ["", "user", None, GONE]),
    ("delta", "content", [None, []]),
    ("delta", "reasoning_content", [None]),
    ("delta", "tool_calls", [None, []]),
    ("piece", "index", [-1, None, GONE]),
    ("piece", "id", ["1", None]),
    ("piece", "type", ["tool", None]),
    ("piece", "function", [{"name": "f"}, {"arguments": None}, {"name": None, "arguments": ""}, None, GONE]),
]


def _changed(whole: dict[str, Any], place: str, key: str, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(whole)
    target: Any = changed
    for step in PLACES[place]:
        target = target[step]
    if value is GONE:
        del target[key]
    else:
        target[key] = copy.deepcopy(value)
    return changed


def _cases(table: list[tuple[str, str, list[Any]]]) -> list[Any]:
    return [
        pytest.param(place, key, value, id=f"{place}.{key}-{number}")
        for place, key, values in table
        for number, value in enumerate(values)
    ]


@pytest.mark.parametrize(("component", "body"), [("ChatCompletion", BODY), ("ChatCompletionChunk", CHUNK)])
def test_full_answers_are_valid(validators: dict[str, Any], component: str, body: dict[str, Any]) -> None:
    assert validators[component].is_valid(body)


@pytest.mark.parametrize(("place", "key", "value"), _cases(BOTH + WHOLE))
def test_body_refused(validators: dict[str, Any], place: str, key: str, value: Any) -> None:
    assert not validators["ChatCompletion"].is_valid(_changed(BODY, place, key, value))


@pytest.mark.parametrize(("place", "key", "value"), _cases(BOTH + STREAMED))
def test_chunk_refused(validators: dict[str, Any], place: str, key: str, value: Any) -> None:
    assert not validators["ChatCompletionChunk"].is_valid(_changed(CHUNK, place, key, value))


# What may be missing or null: S2, S3, S6, S9, S13.
LEAN: list[tuple[str, str, str, Any]] = [
    ("ChatCompletion", "message", "reasoning_content", GONE),
    ("ChatCompletion", "message", "tool_calls", []),
    ("ChatCompletion", "choice", "logprobs", None),
    ("ChatCompletion", "usage", "completion_tokens_details", GONE),
    ("ChatCompletion", "body", "decode_time_arr", []),
    ("ChatCompletion", "body", "prefill_time", 0.5),
    ("ChatCompletionChunk", "body", "usage", GONE),
    ("ChatCompletionChunk", "body", "full_text", GONE),
    ("ChatCompletionChunk", "choice", "finish_reason", None),
    ("ChatCompletionChunk", "choice", "logprobs", None),
    ("ChatCompletionChunk", "delta", "content", GONE),
    ("ChatCompletionChunk", "delta", "tool_calls", GONE),
    ("ChatCompletionChunk", "piece", "id", GONE),
    ("ChatCompletionChunk", "piece", "function", {"arguments": "{"}),
]


@pytest.mark.parametrize(("component", "place", "key", "value"), LEAN)
def test_may_be_missing(validators: dict[str, Any], component: str, place: str, key: str, value: Any) -> None:
    whole = BODY if component == "ChatCompletion" else CHUNK
    assert validators[component].is_valid(_changed(whole, place, key, value))
