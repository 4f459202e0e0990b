from __future__ import annotations

import inspect
import json
import re
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import _cached_compile_jinja_template

from conformance.rule_cases import RuleCase, load_rule_cases
from mindserve.api._generated.constants import MAX_JSON_VALUES
from mindserve.api._generated.rules import RULES
from mindserve.api.checks import PREDICATES, check_request
from mindserve.api.checks.breach import Subject
from mindserve.api.decode import decode_request
from mindserve.api.dialect.vllm import VllmDialect
from mindserve.config.settings import ServeSettings
from mindserve.errors import RequestRefused
from tests.serving import chat_body

VLLM = VllmDialect()

CASES = load_rule_cases("m")
OWN = ServeSettings(model_name="m")
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def check(body: dict[str, Any], **settings: Any) -> None:
    request = decode_request(json.dumps(body).encode(), VLLM.requests, max_json_depth=20)
    check_request(request, VLLM.rules, ServeSettings(model_name="m", **settings))


def refusal(body: dict[str, Any], **settings: Any) -> RequestRefused:
    with pytest.raises(RequestRefused) as refused:
        check(body, **settings)
    return refused.value


def test_rules_and_predicates_are_a_bijection() -> None:
    assert set(PREDICATES) == set(RULES)
    assert len(set(PREDICATES.values())) == len(PREDICATES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_every_rule_is_enforced(case: RuleCase) -> None:
    """In the vllm dialect. The predicate itself sees the breach, and the request is refused in the words of the first
    rule it breaks."""
    broken, kept = (
        Subject(request=decode_request(json.dumps(body).encode(), VLLM.requests, max_json_depth=20), settings=OWN)
        for body in (case.breaks, case.keeps)
    )
    predicate, rule = PREDICATES[case.rule], RULES[case.rule]
    assert predicate(broken, rule) is not None
    assert predicate(kept, rule) is None
    refused = refusal(case.breaks)
    assert refused.field == case.field
    assert case.field in refused.message
    assert not re.search(r"\{\w+\}", refused.message)
    check(case.keeps)


def test_the_size_of_messages_is_a_setting() -> None:
    body = chat_body(messages=[{"role": "user", "content": "ab"}, {"role": "user", "content": "cde"}])
    check(body, max_messages_length=13)
    refused = refusal(body, max_messages_length=12)
    assert "13 characters" in refused.message
    assert "at most 12" in refused.message


@pytest.mark.parametrize(
    ("fields", "num_characters"),
    [
        ({"role": "critic"}, 6 + 1),
        ({"content": [{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}]}, 4 + 3),
        ({"content": "\U0001f600"}, 4 + 1),
        ({"reasoning_content": "abc"}, 4 + 1 + 3),
        ({"reasoning": "abc"}, 4 + 1 + 3),
        ({"tool_call_id": "abc"}, 4 + 1 + 3),
        ({"tool_calls": [{"id": "i", "type": "function", "function": {"name": "fg", "arguments": "{ }"}}]}, 5 + 6),
        ({"tool_calls": [{"id": "i", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]}, 5 + 9),
        ({"content": [{"type": "image_url", "image_url": "long.png"}, {"type": "text", "text": "x"}]}, 4 + 1),
    ],
)
def test_every_string_that_a_template_may_render_counts(fields: dict[str, Any], num_characters: int) -> None:
    """Reading C21."""
    body = chat_body(messages=[{"role": "user", "content": "x", **fields}])
    check(body, max_messages_length=num_characters)
    assert f" {num_characters} characters" in refusal(body, max_messages_length=num_characters - 1).message


def test_what_the_template_engine_and_the_tokenizer_set_is_reserved() -> None:
    """What a template sees beside a request's variables, asked of those who put it there."""
    reserved = set(RULES["template-kwargs-reserved"].values)
    environment: Any = _cached_compile_jinja_template("").environment
    assert reserved >= set(environment.globals)
    assert reserved >= {*PreTrainedTokenizerFast.SPECIAL_TOKENS_ATTRIBUTES, "additional_special_tokens"}
    parameters = set(inspect.signature(PreTrainedTokenizerFast.apply_chat_template).parameters)
    assert reserved >= parameters - {"kwargs"}


@pytest.mark.parametrize("content", ["", None, []])
def test_empty_content_is_a_setting(content: Any) -> None:
    body = chat_body(messages=[{"role": "system", "content": content}, {"role": "user", "content": "x"}])
    assert refusal(body).field == "messages[0].content"
    check(body, allow_empty_content=True)


@pytest.mark.parametrize("content", ["", None])
def test_calls_and_tool_results_need_no_content(content: str | None) -> None:
    check(
        chat_body(
            messages=[
                {"role": "user", "content": "x"},
                {"role": "assistant", "content": content, "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c", "content": content},
            ]
        )
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"use_beam_search": True, "stop": []},
        {"use_beam_search": True, "n": 2, "best_of": 1},
        {"use_beam_search": True, "n": 2, "temperature": 0},
        {"stream": True, "n": 2, "best_of": 2},
        {"stream": True, "best_of": 1},
        {"n": 1, "temperature": 0},
        {"best_of": 3, "n": 2},
        {"logprobs": False, "top_logprobs": 0},
        {"top_logprobs": 5},
        {"top_k": -1},
        {"seed": 2**64 - 1},
        {"stop": ["a" * 32768]},
        {"tool_choice": "auto", "tools": []},
        {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none", "stop": "x", "n": 2},
        {"chat_template_kwargs": {"enable_thinking": None, "other": 1.5}},
    ],
)
def test_what_no_rule_forbids(fields: dict[str, Any]) -> None:
    check(chat_body(**fields))


@pytest.mark.parametrize("num_calls", [1, 2, 64])
def test_the_arguments_of_all_calls_together_are_bounded(num_calls: int) -> None:
    """Each text holds an object, a list and its items: it is counted as one more than the list has items."""
    sizes = [MAX_JSON_VALUES // num_calls - 1] * num_calls
    for surplus in (0, 1):
        sizes[-1] += surplus
        texts = [json.dumps({"a": [","] * size}) for size in sizes]
        calls = [{**CALL, "function": {"name": "f", "arguments": text}} for text in texts]
        body = chat_body(messages=[{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": calls}])
        if not surplus:
            check(body)
    assert refusal(body).message == (
        "the arguments of the tool calls in messages hold more than 262144 values together"
    )


@pytest.mark.parametrize("arguments", ["[1]", "{", "1", '{"a": NaN}', '{"a":' * 30 + "1" + "}" * 30])
def test_history_arguments_must_be_json_objects(arguments: str) -> None:
    call = {**CALL, "function": {"name": "f", "arguments": arguments}}
    body = chat_body(messages=[{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]}])
    assert refusal(body).field == "messages[1].tool_calls[0].function.arguments"


@pytest.mark.parametrize(
    ("parameters", "key"),
    [
        ({"type": ["object"]}, "type"),
        ({"properties": []}, "properties"),
        ({"properties": {"a": "string"}}, "properties.a"),
        ({"required": "a"}, "required"),
        ({"required": ["a", 1]}, "required[1]"),
        ({"additionalProperties": "no"}, "additionalProperties"),
    ],
)
def test_types_of_tool_parameters(parameters: dict[str, Any], key: str) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    assert refusal(chat_body(tools=tools)).field == f"tools[0].function.parameters.{key}"
