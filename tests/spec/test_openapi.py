"""The contract is a valid OpenAPI document and says what a server of it must offer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openapi_spec_validator import validate

OPERATIONS = {
    "createChatCompletion": ("post", "/v1/chat/completions"),
    "listModels": ("get", "/v1/models"),
    "getModel": ("get", "/v1/models/{model}"),
    "getHealth": ("get", "/health"),
    "getLiveness": ("get", "/v2/health/live"),
    "getReadiness": ("get", "/v2/health/ready"),
    "getMetrics": ("get", "/metrics"),
    "getSpecYaml": ("get", "/openapi.yaml"),
    "getSpecJson": ("get", "/openapi.json"),
    "getPlayground": ("get", "/"),
    "getDocs": ("get", "/docs"),
}

# Which bodies each status of the POST may have, after the table of the two dialects (D2 to D8).
VLLM, OPENAI = "ErrorBody", "OpenAIErrorBody"
ERROR_BODIES = {
    "400": {VLLM, OPENAI},
    "401": {VLLM, OPENAI},
    "404": {VLLM, OPENAI},
    "405": {VLLM, OPENAI},
    "413": {VLLM, OPENAI},
    "415": {VLLM, OPENAI},
    "422": {VLLM},
    "429": {OPENAI},
    "431": {VLLM, OPENAI},
    "500": {VLLM, OPENAI},
    "503": {VLLM, OPENAI},
}

# Keys in the order in which they travel: S2, S3, S6 and S13, transcribed from the interpretations.
WIRE_ORDER = {
    "ChatCompletion": "id object created model choices usage prefill_time decode_time_arr",
    "Choice": "index message logprobs finish_reason",
    "AssistantMessage": "role content refusal reasoning_content tool_calls",
    "ToolCall": "function id type",
    "ToolCallFunction": "arguments name",
    "TokenLogprob": "token logprob bytes top_logprobs",
    "TopLogprob": "token logprob bytes",
    "Usage": (
        "prompt_tokens prompt_tokens_details completion_tokens completion_tokens_details total_tokens "
        "batch_size queue_wait_time"
    ),
    "ChatCompletionChunk": "id object created model full_text usage choices",
    "ChunkChoice": "index delta logprobs finish_reason",
    "ChunkDelta": "role content reasoning_content tool_calls",
    "DeltaToolCall": "index id type function",
    "DeltaToolCallFunction": "name arguments",
    "ErrorBody": "error error_type",
    "OpenAIError": "message type param code",
}

# Keys that may be missing from an answer; all others are always there.
SOMETIMES_ABSENT = {
    "AssistantMessage": {"reasoning_content", "refusal"},  # the latter in the openai dialect alone
    "Usage": {"completion_tokens_details"},
    "ChatCompletionChunk": {"full_text", "usage"},
    "ChunkDelta": {"content", "reasoning_content", "tool_calls"},
    "DeltaToolCall": {"id", "type"},
    "DeltaToolCallFunction": {"name"},
}


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "$ref":
                yield item
            else:
                yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def test_is_valid_openapi(contract: dict[str, Any]) -> None:
    validate(contract)


def test_has_exactly_these_operations(contract: dict[str, Any]) -> None:
    found = {
        operation["operationId"]: (method, path)
        for path, item in contract["paths"].items()
        for method, operation in item.items()
    }
    assert found == OPERATIONS


@pytest.mark.parametrize("section", ["schemas", "responses", "headers"])
def test_no_component_is_unused(contract: dict[str, Any], section: str) -> None:
    used = set(_references(contract))
    # The mapping of a discriminator names components without $ref, but its members are referenced as well.
    unused = [name for name in contract["components"][section] if f"#/components/{section}/{name}" not in used]
    assert unused == []


def test_each_error_status_has_its_bodies(contract: dict[str, Any]) -> None:
    responses = contract["paths"]["/v1/chat/completions"]["post"]["responses"]
    found = {}
    for status, reference in responses.items():
        if status != "200":
            response = contract["components"]["responses"][reference["$ref"].rsplit("/", 1)[1]]
            schema = response["content"]["application/json"]["schema"]
            found[status] = {target.rsplit("/", 1)[1] for target in _references(schema)}
    assert found == ERROR_BODIES


@pytest.mark.parametrize("response", ["TooManyRequests", "Unavailable"])
def test_overload_says_when_to_come_back(contract: dict[str, Any], response: str) -> None:
    header = contract["components"]["responses"][response]["headers"]["Retry-After"]
    assert header == {"$ref": "#/components/headers/RetryAfter"}
    assert contract["components"]["headers"]["RetryAfter"]["required"] is True


@pytest.mark.parametrize("component", WIRE_ORDER)
def test_properties_stand_in_wire_order(schemas: dict[str, Any], component: str) -> None:
    properties = list(schemas[component]["properties"])
    assert properties == WIRE_ORDER[component].split()
    assert set(properties) - set(schemas[component]["required"]) == SOMETIMES_ABSENT.get(component, set())


def test_one_event_is_a_chunk_a_failure_or_the_end(contract: dict[str, Any], validators: dict[str, Any]) -> None:
    answer = contract["paths"]["/v1/chat/completions"]["post"]["responses"]["200"]["content"]
    assert answer["application/json"]["schema"] == {"$ref": "#/components/schemas/ChatCompletion"}
    event = answer["text/event-stream"]["schema"]
    end, body = event["properties"]["data"]["oneOf"]
    assert event["required"] == ["data"]
    assert end == {"const": "[DONE]"}
    assert body["contentMediaType"] == "application/json"
    named = [reference["$ref"].rsplit("/", 1)[1] for reference in body["contentSchema"]["anyOf"]]
    assert named == ["ChatCompletionChunk", "ErrorBody", "OpenAIErrorBody"]
    stream = answer["text/event-stream"]["x-stream"]
    assert stream["frame"] == "data: {json}\n\n"
    assert [item["name"] for item in stream["events"]] == [
        "opening",
        "delta",
        "finish",
        "usage",
        "done",
        "failure",
        "failure",
    ]
    assert {item["schema"] for item in stream["events"] if "schema" in item} <= set(validators)


def test_survives_the_way_through_json(contract: dict[str, Any]) -> None:
    """What is served as /openapi.json has no dates, no keys other than strings and the exact integers."""
    assert json.loads(json.dumps(contract, allow_nan=False)) == contract


ERRORS = [
    ("ErrorBody", {"error": "max_tokens must be at least 1", "error_type": "Input Validation Error"}, True),
    ("ErrorBody", {"error": "", "error_type": "Input Validation Error"}, False),
    ("ErrorBody", {"error": "x", "error_type": "Oops"}, False),
    ("ErrorBody", {"error": {"message": "x"}, "error_type": "Input Validation Error"}, False),
    ("OpenAIErrorBody", {"error": {"message": "x", "type": "server_error", "param": None, "code": None}}, True),
    ("OpenAIErrorBody", {"error": {"message": "x", "type": "server_error"}}, False),
    ("OpenAIErrorBody", {"error": "x"}, False),
    ("HealthStatus", {"status": "ready", "reason": ""}, True),
    ("HealthStatus", {"status": "loading"}, False),
    ("HealthStatus", {"status": "fine", "reason": ""}, False),
]


@pytest.mark.parametrize(("component", "body", "expected"), ERRORS)
def test_small_bodies(validators: dict[str, Any], component: str, body: Any, expected: bool) -> None:
    assert validators[component].is_valid(body) is expected
