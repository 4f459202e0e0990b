"""What is refused before it is sent is what the server refuses, in the same words where they are the contract's."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from typing import Any

import pytest

from conformance.rule_cases import RuleCase, load_rule_cases
from mindserve.api.checks import check_request
from mindserve.api.decode import decode_request
from mindserve.api.dialect import dialect_named
from mindserve.config.settings import Dialect, ServeSettings
from mindserve.errors import RequestRefused
from mindserve_client import InvalidRequest, image, models, openai_models, text
from mindserve_client._generated.params import ChatCompletionParams
from mindserve_client._generated.rules import RULES
from mindserve_client.options import DialectName
from mindserve_client.request import REQUEST_MODELS, encode_request
from mindserve_client.rules import PREDICATES, UNCHECKED
from tests.random_requests import RequestDrawing
from tests.serving import chat_body

CASES = [case for case in load_rule_cases("m") if case.rule not in UNCHECKED]
DIALECTS: tuple[DialectName, ...] = ("vllm", "openai")
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def refusal(body: dict[str, Any], dialect: DialectName = "vllm") -> InvalidRequest | None:
    try:
        assert json.loads(encode_request(body, dialect, None)) == {k: v for k, v in body.items() if v is not None}
    except InvalidRequest as refused:
        return refused
    return None


def server_refusal(body: dict[str, Any], dialect: DialectName = "vllm") -> RequestRefused | None:
    """What the server says, apart from what its settings and its model decide."""
    own = dialect_named(Dialect(dialect))
    rules = {name: rule for name, rule in own.rules.items() if name in (*PREDICATES, "seed-range")}
    try:
        request = decode_request(json.dumps(body).encode(), own.requests, max_json_depth=20)
        check_request(request, rules, ServeSettings(model_name="m"))
    except RequestRefused as refused:
        return refused
    return None


def test_every_rule_has_a_predicate_or_a_reason_to_have_none() -> None:
    assert set(PREDICATES) | set(UNCHECKED) == set(RULES)
    assert not set(PREDICATES) & set(UNCHECKED)
    assert len(set(PREDICATES.values())) == len(PREDICATES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_a_broken_rule_is_told_in_the_servers_words(case: RuleCase) -> None:
    theirs, mine = server_refusal(case.breaks), refusal(case.breaks)
    assert theirs is not None
    assert mine is not None
    assert mine.field.startswith(case.field)
    assert (str(theirs), theirs.field) in [(fault.message, fault.field) for fault in mine.faults]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_what_just_keeps_a_rule_is_sent(case: RuleCase) -> None:
    assert refusal(case.keeps) is None


@pytest.mark.parametrize("dialect", DIALECTS)
def test_random_requests_are_refused_as_the_server_refuses_them(dialect: DialectName) -> None:
    contract = _without_sizes_of_maps(json.loads(dialect_named(Dialect(dialect)).requests.document))
    seen: Counter[bool] = Counter()
    dice = random.Random(3)
    for drawn, _ in zip(RequestDrawing(contract, ("m",), seed=5).requests(), range(2500), strict=False):
        request = _with_integers(drawn if dice.random() < 0.5 else _damaged(drawn, dice))
        request.pop("no_field_of_this_api", None)
        mine, theirs = refusal(copy.deepcopy(request), dialect), server_refusal(request, dialect)
        assert (mine is None) == (theirs is None), (request, mine, theirs)
        if mine is not None and theirs is not None and theirs.field is not None:
            assert any(_same(fault.field, theirs.field) for fault in mine.faults), (request, mine, theirs)
        seen[mine is None] += 1
    assert min(seen.values()) > 300


def _without_sizes_of_maps(value: Any) -> Any:
    """Which no drawn map exceeds, and which the drawing does not know."""
    if isinstance(value, list):
        return [_without_sizes_of_maps(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: _without_sizes_of_maps(item) for key, item in value.items() if key != "maxProperties"}


def _with_integers(value: Any) -> Any:
    """On the wire 2.0 is an integer; Python has integers of its own, so here it is none."""
    if isinstance(value, dict):
        return {key: _with_integers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_integers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def _same(mine: str, theirs: str) -> bool:
    """The same place, or one inside the other: of a union the server may speak of the whole."""
    return mine.startswith(theirs) or theirs.startswith(mine)


def _damaged(request: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    """With one value of a wrong type or out of bounds."""
    name = dice.choice([name for name in request if name != "stop_token_ids"])
    return {**request, name: dice.choice([-5, 1.5, 1e300, "", "x", True, [], [5], {}, {"type": "x"}, 2**70, [None]])}


def test_every_fault_is_told_with_its_field() -> None:
    refused = refusal(chat_body(temperature=-1, n=200, stop=["a", ""], tools=[{"type": "function", "function": {}}]))
    assert refused is not None
    assert {fault.field for fault in refused.faults} == {"temperature", "n", "stop[1]", "tools[0].function.name"}
    assert "temperature: Input should be greater than or equal to 0; got -1" in str(refused)
    assert "tools[0].function.name is required" in str(refused)


@pytest.mark.parametrize(
    ("content", "field", "says"),
    [
        (5, "", "valid string or Input should be a valid list; got 5"),
        ([{"type": "text"}], "[0].text", "is required"),
        ([{"type": "text", "text": ""}], "[0].text", "at least 1 character"),
        ([{"type": "image_url", "image_url": {"url": ""}}], "[0].image_url.url", "at least 1 character"),
        ([{"type": "odd"}], "[0].type", "'image_url'"),
        ([{}], "[0].type", "discriminator"),
    ],
)
def test_a_place_in_a_union_is_named_as_it_is_in_the_request(content: Any, field: str, says: str) -> None:
    refused = refusal(chat_body(messages=[{"role": "user", "content": content}]))
    assert refused is not None
    assert [fault.field for fault in refused.faults] == [f"messages[0].content{field}"]
    assert says in str(refused)


def test_parameters_that_do_not_exist_are_told() -> None:
    refused = refusal(chat_body(tempreture=1, logit_bias={"1": 1}))
    assert str(refused) == (
        "tempreture is not a parameter of the contract; extra_body sends it all the same; "
        "logit_bias does not exist in the vllm dialect, only in openai"
    )
    assert refusal(chat_body(logit_bias={"1": 1}), "openai") is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "Out of range float"),
        ({1}, "set is not JSON serializable"),
        ("\ud800", "surrogates not allowed"),
    ],
)
def test_what_is_no_json_is_told_with_its_field(value: Any, reason: str) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"x": value}}}
    with pytest.raises(InvalidRequest, match=rf"tools cannot be written as JSON: .*{reason}") as refused:
        encode_request(chat_body(tools=[tool]), "vllm", None)
    assert refused.value.field == "tools"


def test_a_request_that_holds_itself_is_told() -> None:
    endless: dict[str, Any] = {}
    endless["a"] = endless
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        encode_request(chat_body(chat_template_kwargs=endless), "vllm", None)


def test_models_and_their_objects_are_sent_alike() -> None:
    answered = models.AssistantMessage(role="assistant", content="", tool_calls=[models.ToolCall(**CALL)])
    others = openai_models.AssistantMessage(role="assistant", content=None, refusal=None)
    sent = json.loads(
        encode_request(
            {
                "model": "m",
                "messages": (
                    models.ChatMessage(role="user", content=[text("a"), image("http://h/a.png")]),
                    answered,
                    others,
                    {"role": "tool", "tool_call_id": "c", "content": None, "name": "kept"},
                ),
                "tools": [models.Tool(type="function", function=models.FunctionDefinition(name="f"))],
                "response_format": models.ResponseFormat(
                    type="json_schema", json_schema=models.JsonSchemaFormat(name="n", schema={"type": "object"})
                ),
                "temperature": None,
            },
            "vllm",
            {"odd": 1},
        )
    )
    assert sent == {
        "model": "m",
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "a"},
                    {"type": "image_url", "image_url": {"url": "http://h/a.png"}},
                ],
            },
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "assistant", "content": None, "refusal": None},
            {"role": "tool", "tool_call_id": "c", "content": None, "name": "kept"},
        ],
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
        "odd": 1,
    }


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_field_of_the_contract_is_a_parameter(dialect: DialectName) -> None:
    schemas = json.loads(dialect_named(Dialect(dialect)).requests.document)["components"]["schemas"]
    fields = list(schemas["ChatCompletionRequest"]["properties"])
    assert list(REQUEST_MODELS[dialect].model_fields) == fields
    assert set(fields) - {"stream"} <= set(ChatCompletionParams.__annotations__)


def test_no_parameter_is_unknown_to_both_dialects() -> None:
    known = {name for dialect in DIALECTS for name in REQUEST_MODELS[dialect].model_fields}
    assert set(ChatCompletionParams.__annotations__) == known - {"stream"}
