"""The rules of the contract: what JSON Schema can tell of them it tells, and it tells nothing else.

The requests that break and keep each rule are those of the conformance suite; the table below adds, for each condition
between fields, what must pass beside it.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from typing import Any

import pytest

from conformance.rule_cases import RuleCase, load_rule_cases

# Comparisons of fields, totals and parsed texts: no keyword of JSON Schema says them.
BEYOND_SCHEMA = {
    "messages-text-length",
    "tool-call-arguments-values",
    "tool-call-arguments-json",
    "media-parts-limit",
    "stop-total-length",
    "best-of-below-n",
    "best-of-differs-from-n-in-stream",
    "strict-schema-size",
    "tool-choice-unknown-tool",
    "response-schema-size",
}

CASES = load_rule_cases("m")
TOOLS = [{"type": "function", "function": {"name": "f"}}]
CALLS = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
USER = {"role": "user", "content": "a"}


@pytest.fixture(scope="session")
def rules(contract: dict[str, Any]) -> dict[str, dict[str, Any]]:
    listed = contract["paths"]["/v1/chat/completions"]["post"]["x-rules"]
    table = {rule["id"]: rule for rule in listed}
    assert len(table) == len(listed)
    return table


def _named_rules(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "x-rule":
                yield from item if isinstance(item, list) else [item]
            else:
                yield from _named_rules(item)
    elif isinstance(value, list):
        for item in value:
            yield from _named_rules(item)


def test_every_rule_has_a_case(rules: dict[str, Any]) -> None:
    """Of those of the vllm dialect."""
    assert [case.rule for case in CASES] == [name for name, rule in rules.items() if rule.get("dialect") != "openai"]


def test_schemas_name_rules_and_every_rule_is_named(rules: dict[str, Any], schemas: dict[str, Any]) -> None:
    assert set(_named_rules(schemas)) == set(rules)


def test_messages_name_the_field_and_can_be_filled_in(rules: dict[str, Any]) -> None:
    for rule in rules.values():
        names = {name for _, name, _, _ in string.Formatter().parse(rule["message"]) if name is not None}
        assert "field" in names, rule["id"]
        assert names <= {"field", "value", "bound", "values"}, rule["id"]
        places = {name for _, name, _, _ in string.Formatter().parse(rule["field"]) if name is not None}
        assert places <= {"i", "j", "key"}, rule["id"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_schema_refuses_what_it_can_tell(request_validator: Any, case: RuleCase) -> None:
    assert request_validator.is_valid(case.breaks) is (case.rule in BEYOND_SCHEMA)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_schema_accepts_what_keeps_the_rule(request_validator: Any, case: RuleCase) -> None:
    assert request_validator.is_valid(case.keeps)


def test_numbers_of_rules(rules: dict[str, Any]) -> None:
    """Transcribed from the document and the readings (R4, R5, R12, R15, R28, C20, C24)."""
    bounds = {rule_id: rule["bound"] for rule_id, rule in rules.items() if rule.get("bound") is not None}
    assert bounds == {
        "messages-text-length": 4 * 1024 * 1024,
        "tool-call-arguments-values": 256 * 1024,
        "media-parts-limit": 20,
        "top-k-zero": 2**31 - 1,
        "seed-range": 2**64 - 1,
        "stop-total-length": 32 * 1024,
        "strict-schema-size": 64 * 1024,
        "response-schema-size": 64 * 1024,
    }


def test_reserved_template_variables(rules: dict[str, Any]) -> None:
    """R22: what the server or the template engine sets itself."""
    reserved = set(rules["template-kwargs-reserved"]["values"])
    assert reserved >= {"messages", "tools", "chat_template", "tokenize", "add_generation_prompt", "documents"}
    assert not reserved & {"enable_thinking", "thinking", "thinking_budget"}


# (reading, fields laid over a plain request, valid?)
CONDITIONS: list[tuple[str, dict[str, Any], bool]] = [
    ("R8 beam with nothing to stop at", {"use_beam_search": True, "stop": [], "stop_token_ids": None}, True),
    ("R8 beam with a stop list", {"use_beam_search": True, "stop": ["a"]}, False),
    ("C5 beam with ignored elements only", {"use_beam_search": True, "stop_token_ids": ["x"]}, False),
    ("R7 several with the default temperature", {"n": 2}, True),
    ("R7 several, greedy, by beam", {"n": 2, "temperature": 0, "use_beam_search": True}, True),
    ("R7 several, temperature 0.0", {"n": 2, "temperature": 0.0}, False),
    ("R7 one, greedy", {"n": 1, "best_of": None, "temperature": 0}, True),
    ("R11 candidates without logprobs", {"top_logprobs": 3}, True),
    ("R11 candidates with logprobs null", {"logprobs": None, "top_logprobs": 3}, True),
    ("R19 no tools, automatic choice", {"tool_choice": "auto", "tools": []}, True),
    ("R19 null choice", {"tool_choice": None}, True),
    ("R19 named choice without tools", {"tool_choice": {"type": "function", "function": {"name": "f"}}}, False),
    ("R19 required with an empty list", {"tool_choice": "required", "tools": []}, False),
    ("R20 required", {"tool_choice": "required", "tools": TOOLS}, True),
    ("R9 tools with empty stops", {"tools": TOOLS, "stop": [], "stop_token_ids": []}, True),
    ("C6 tools, flag says no", {"tools": TOOLS, "include_stop_str_in_output": False}, True),
    ("R9 tools, one sequence", {"tools": TOOLS, "n": 1, "best_of": 1}, True),
    ("C7 tools, candidates counted as a wish", {"tools": TOOLS, "top_logprobs": 0}, False),
    ("C7 tools, log-probabilities off", {"tools": TOOLS, "logprobs": False, "top_logprobs": 0}, True),
    ("R9 tools switched off", {"tools": TOOLS, "tool_choice": "none", "stop": "a", "n": 2, "logprobs": True}, True),
    ("R9 automatic choice is a use", {"tools": TOOLS, "tool_choice": None, "stop": "a"}, False),
    ("R22 scalars", {"chat_template_kwargs": {"a": None, "b": 1.5, "c": "x", "enable_thinking": None}}, True),
    ("R25 an object", {"response_format": {"type": "json_object"}}, True),
    ("R25 a schema", {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {}}}}, True),
    ("R25 null schema", {"response_format": {"type": "json_schema", "json_schema": None}}, False),
    ("C16 no name", {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}, False),
    ("C15 options", {"stream_options": {"include_usage": True}}, True),
    ("C15 options of a wrong type", {"stream_options": {"include_usage": "yes"}}, False),
    ("R16 list without parts", {"messages": [{"role": "system", "content": []}]}, False),
    ("R16 null content", {"messages": [{"role": "judge", "content": None}]}, False),
    ("R16 no content", {"messages": [{"role": "assistant"}]}, False),
    ("R16 no content and no calls", {"messages": [{"role": "assistant", "tool_calls": []}]}, False),
    ("R18 calls beside no content", {"messages": [{"role": "assistant", "tool_calls": CALLS}]}, True),
    ("R18 calls beside null", {"messages": [{"role": "assistant", "content": None, "tool_calls": CALLS}]}, True),
    ("R16 calls of somebody else", {"messages": [{"role": "user", "content": "", "tool_calls": CALLS}]}, False),
    ("R16 empty tool result", {"messages": [USER, {"role": "tool", "tool_call_id": "c"}]}, True),
    ("R16 null tool result", {"messages": [USER, {"role": "tool", "tool_call_id": "c", "content": None}]}, True),
    ("R18 null calls", {"messages": [{**USER, "tool_calls": None, "tool_call_id": None}]}, True),
    ("C3 reasoning sent back", {"messages": [{"role": "assistant", "content": "a", "reasoning_content": "b"}]}, True),
    (
        "C3 its other name",
        {"messages": [{"role": "assistant", "content": "a", "reasoning": "b"}]},
        True,
    ),
    ("C3 reasoning of a wrong type", {"messages": [{**USER, "reasoning_content": ["b"]}]}, False),
    ("C22 empty text part", {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]}, False),
]


@pytest.mark.parametrize(("fields", "valid"), [case[1:] for case in CONDITIONS], ids=[case[0] for case in CONDITIONS])
def test_conditions(request_validator: Any, fields: dict[str, Any], valid: bool) -> None:
    assert request_validator.is_valid({"model": "m", "messages": [USER], **fields}) is valid
