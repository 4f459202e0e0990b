from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, inspect

from mindserve.api._generated import openai_models
from mindserve.api._generated.constants import MAX_JSON_VALUES
from mindserve.api._generated.models import ChatCompletionRequest
from mindserve.api.checks import check_request
from mindserve.api.contract import openapi_json
from mindserve.api.decode import check_content_type, decode_request
from mindserve.api.dialect.vllm import VllmDialect
from mindserve.api.integral import integer_fields
from mindserve.config.settings import Dialect, ServeSettings
from mindserve.errors import RefusalKind, RequestRefused
from tests.serving import HELLO

VLLM = VllmDialect()

EXAMPLES = Path(__file__).parents[3] / "spec" / "examples" / "requests"
USER = {"role": "user", "content": "hi"}


def decode(body: Any, *, content_type: str | None = None, depth: int = 10) -> ChatCompletionRequest:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    check_content_type(content_type)
    return decode_request(data, VLLM.requests, max_json_depth=depth)


def refusal(body: Any, **options: Any) -> RequestRefused:
    with pytest.raises(RequestRefused) as refused:
        decode(body, **options)
    return refused.value


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.json")), ids=lambda path: path.stem)
def test_the_document_s_examples_pass_with_the_default_depth(path: Path) -> None:
    assert decode(path.read_bytes()).model


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"n": 0}, "n", "n must be an integer between 1 and 128, got 0"),
        ({"n": 129}, "n", "n must be an integer between 1 and 128, got 129"),
        ({"n": True}, "n", "n must be an integer between 1 and 128, got true"),
        ({"n": "2"}, "n", 'n must be an integer between 1 and 128, got "2"'),
        ({"n": 2.5}, "n", "n must be an integer between 1 and 128, got 2.5"),
        ({"top_p": 0}, "top_p", "top_p must be a number, greater than 1e-6 and at most 1.0, got 0"),
        ({"temperature": "1"}, "temperature", 'temperature must be a number, at least 0.0, got "1"'),
        ({"temperature": False}, "temperature", "temperature must be a number, at least 0.0, got false"),
        ({"seed": -1}, "seed", "seed must be an integer between 0 and 18446744073709551615, got -1"),
        ({"stream": 1}, "stream", "stream must be a boolean, got 1"),
        ({"stop": ""}, "stop", 'stop must be a string of 1 to 32768 characters or a list, got ""'),
        ({"stop": ["a", ""]}, "stop[1]", 'stop[1] must be a string of at least 1 character, got ""'),
        ({"messages": []}, "messages", "messages must be a list of 1 to 16384 items, got a list of 0 items"),
        ({"messages": None}, "messages", "messages must be a list of 1 to 16384 items, got null"),
        ({"model": None}, "model", "model must be a string of at least 1 character, got null"),
        ({"messages": [USER, {"content": "x"}]}, "messages[1].role", "messages[1].role is required"),
        (
            {"messages": [{"role": None}]},
            "messages[0].role",
            "messages[0].role must be a string of 1 to 64 characters, got null",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]},
            "messages[0].content[0].text",
            'messages[0].content[0].text must be a string of at least 1 character, got ""',
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "sound"}]}]},
            "messages[0].content[0].type",
            'messages[0].content[0].type must be "text" or "image_url" or "video_url" or "audio_url" or "input_audio",'
            ' got "sound"',
        ),
        (
            {"tool_choice": "maybe"},
            "tool_choice",
            'tool_choice must be one of "none", "auto", "required" or an object, got "maybe"',
        ),
        (
            {"response_format": {"type": "xml"}},
            "response_format.type",
            'response_format.type must be one of "text", "json_object", "json_schema", got "xml"',
        ),
        ({"tools": {}}, "tools", "tools must be a list of 0 to 16384 items, got an object"),
    ],
)
def test_refusals_name_field_bound_and_value(fields: dict[str, Any], field: str, message: str) -> None:
    refused = refusal({**HELLO, **fields})
    assert (refused.field, refused.message) == (field, message)
    assert refused.kind is RefusalKind.VALIDATION


def test_long_values_are_cut() -> None:
    assert len(refusal({**HELLO, "n": "x" * 10_000}).message) < 200
    assert len(refusal({**HELLO, "n": 10**4000}).message) < 200


def raw(text: str) -> bytes:
    return json.dumps(HELLO).encode()[:-1] + b"," + text.encode() + b"}"


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ('"n": 2.0', "n", 2),
        ('"n": 1e2', "n", 100),
        ('"n": 0.2e1', "n", 2),
        ('"top_k": -1.0', "top_k", -1),
        ('"seed": 18446744073709551615', "seed", 2**64 - 1),
        ('"seed": 18446744073709551615.0', "seed", 2**64 - 1),
        ('"seed": 1.8446744073709551614e19', "seed", 2**64 - 2),
        ('"temperature": 1', "temperature", 1.0),
        ('"temperature": 2.0', "temperature", 2.0),
    ],
)
def test_integral_floats_are_integers_exactly(text: str, field: str, value: object) -> None:
    decoded = getattr(decode(raw(text)), field)
    assert decoded == value
    assert type(decoded) is type(value)


def test_free_form_maps_and_ignored_elements_keep_their_floats() -> None:
    request = decode(raw('"n": 1.0, "max_tokens": 3.0, "stop_token_ids": [2.0], "chat_template_kwargs": {"a": 1.0}'))
    assert request.n == 1
    assert request.max_tokens == 3
    assert request.stop_token_ids == [2.0]
    assert request.chat_template_kwargs == {"a": 1.0}
    assert isinstance(request.chat_template_kwargs, dict)
    assert type(request.chat_template_kwargs["a"]) is float


@pytest.mark.parametrize("text", ['"n": 1.5', '"seed": 1e999999999', '"seed": 1e99999999999999999999', '"n": -0.0'])
def test_other_floats_are_not(text: str) -> None:
    assert refusal(raw(text)).field in ("n", "seed")


def test_a_body_with_an_integral_float_is_checked_like_any_other() -> None:
    assert refusal(raw('"n": 2.0, "temperature": "x"')).field == "temperature"
    assert refusal(raw('"n": 2.0, "best_of": 1e400')).message == (
        "best_of must be an integer between 1 and 128, got 1e400"
    )
    assert refusal(raw('"n": 2.0, "top_k": 2.5')).message == (
        "top_k must be an integer between -1 and 2147483647, got 2.5"
    )
    assert refusal(raw('"n": 200.0')).message == "n must be an integer between 1 and 128, got 200.0"
    assert refusal(raw('"n": 2.0, "x": [1,]')).message.startswith("the request body is not valid JSON: trailing comma")
    assert refusal(b'{"n": 2.0, "model": "m"}').message == "messages is required"
    plain = decode({**HELLO, "n": 2, "top_k": 5, "seed": 7, "stop": ["a"], "max_tokens": None})
    assert decode(raw('"n": 2.0, "top_k": 5.0, "seed": 7, "stop": ["a"], "max_tokens": null')) == plain


def _integers(kind: Any, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Where a model has integers."""
    if isinstance(kind, inspect.IntType):
        return {path}
    if isinstance(kind, inspect.StructType):
        return {found for field in kind.fields for found in _integers(field.type, (*path, field.name))}
    inner = kind.types if isinstance(kind, inspect.UnionType) else [getattr(kind, "item_type", None)]
    return {found for member in inner if member is not None for found in _integers(member, path)}


@pytest.mark.parametrize("model", [ChatCompletionRequest, openai_models.ChatCompletionRequest])
def test_integers_are_all_at_the_top_level(model: type[ChatCompletionRequest]) -> None:
    found = _integers(inspect.type_info(model))
    assert found == {(name,) for name in integer_fields(model)}
    assert len(found) == 7


LONG = "1" * 5000
HALF = "\\ud800"


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        ('"chat_template_kwargs": {"a": 1e400}', "chat_template_kwargs.a",
         "chat_template_kwargs.a must be a number that 64 bits can hold, got 1e400"),
        (f'"chat_template_kwargs": {{"a": {LONG}}}', "chat_template_kwargs.a",
         f"chat_template_kwargs.a must be a number that 64 bits can hold, got {LONG[:64]}…"),
        ('"stop_token_ids": [1, 1e400]', "stop_token_ids[1]",
         "stop_token_ids[1] must be a number that 64 bits can hold, got 1e400"),
        ('"temperature": 1e400', "temperature", "temperature must be a number that 64 bits can hold, got 1e400"),
        (f'"n": {LONG}', "n", f"n must be an integer between 1 and 128, got {LONG[:64]}…"),
        ('"n": 1e-99999999999999999999', "n", "n must be an integer between 1 and 128, got 1e-99999999999999999999"),
        ('"n": 1e99999999999999999999', "n", "n must be an integer between 1 and 128, got 1e99999999999999999999"),
        ('"n": 2.5, "x": 1e400', "n", "n must be an integer between 1 and 128, got 2.5"),
        ('"n": 0x1', None, "the request body is not valid JSON: expected ',' or '}' (byte {at})"),
        (f'"n": 2.0, "user": "{HALF}"', None,
         "the request body is not valid JSON: half of a surrogate pair (byte {at})"),
        (f'"n": "x", "user": "\\\\\\\\{HALF}"', None,
         "the request body is not valid JSON: half of a surrogate pair (byte {at})"),
        ('"n": 1', None, None),
    ],
)  # fmt: skip
def test_the_real_fault_is_named(text: str, field: str | None, message: str | None) -> None:
    if message is None:
        assert decode(raw(text)).n == 1
        return
    at = max(raw(text).find(fault) for fault in (b"x1", HALF.encode()))
    refused = refusal(raw(text))
    assert (refused.field, refused.message) == (field, message.replace("{at}", str(at)))


def test_a_body_that_ends_too_early() -> None:
    assert refusal(raw('"user": "\\ud83d\\ude00 \\\\ud800"')[:-1]).message == (
        "the request body is not valid JSON: it ends too early"
    )


@pytest.mark.parametrize(
    "field",
    sorted(set(ChatCompletionRequest.__struct_fields__) - {"model", "messages"}),
)
def test_null_is_absent(field: str) -> None:
    assert getattr(decode({**HELLO, field: None}), field) in (None, UNSET)


def test_unknown_fields_are_ignored_at_every_level() -> None:
    message = {**USER, "name": "bob", "refusal": None, "audio": {"id": 1}}
    part = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
    tool = {"type": "function", "function": {"name": "f", "x": 1}, "y": [2]}
    request = decode(
        {"model": "m", "messages": [message, {"role": "user", "content": [part]}], "tools": [tool], "store": False}
    )
    assert len(request.messages) == 2


def test_depth_is_refused_before_anything_is_built() -> None:
    deep: Any = 1
    for _ in range(11):
        deep = {"a": deep}
    assert "maxJsonDepth" in refusal({**HELLO, "x": deep}, depth=11).message  # 11 and the body itself
    assert decode({**HELLO, "x": deep}, depth=12).model == "m"


@pytest.mark.parametrize("field", ["messages", "stop_token_ids"])
def test_lists_are_bounded(field: str) -> None:
    item = USER if field == "messages" else 5
    assert len(getattr(decode({**HELLO, field: [item] * 16384}), field)) == 16384
    assert refusal({**HELLO, field: [item] * 16385}).field == field


def test_the_number_of_values_is_bounded_whatever_they_are() -> None:
    commas = json.dumps(HELLO).count(",") + 1  # and one for the field
    openings = 4  # the body, two of the messages, the list itself
    most = MAX_JSON_VALUES - commas - openings + 1
    assert decode({**HELLO, "unheard_of": [0] * most}).model == "m"
    refused = refusal({**HELLO, "unheard_of": [0] * (most + 1)})
    assert refused.message == "the request body holds more than 262144 values"


@pytest.mark.parametrize("position", [0, 2**20 - 2, 2**20 - 1, 2**20, 2**21 + 7])
def test_broken_utf8_is_found_at_its_byte(position: int) -> None:
    text = ("é" * 2**20).encode() + b"x" * 100
    start = position - position % 2
    body = b'{"x": "' + text[:start] + b"\xff" + text[start:] + b'"}'
    assert refusal(body).message == f"the request body is not valid UTF-8 at byte {7 + start}"


def test_characters_may_lie_across_the_pieces_that_are_looked_at() -> None:
    for shift in range(4):
        text = "x" * shift + "𝄞" * (2**18 + 5)
        assert decode({**HELLO, "user": text}).model == "m"
        body = json.dumps({**HELLO, "messages": [{**USER, "content": text}]}, ensure_ascii=False).encode()
        assert decode(body).messages[0].content == text


@pytest.mark.parametrize("content_type", ["text/plain", "application/json; charset=utf-16", "", "application/jsonp"])
def test_foreign_content_types(content_type: str) -> None:
    refused = refusal(HELLO, content_type=content_type)
    assert refused.kind is RefusalKind.UNSUPPORTED_MEDIA_TYPE
    assert refused.field == "Content-Type"


# ------------------------------------------------------------- the models and the contract's own schema say the same

VALUE = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 200), st.sampled_from([2**31, 2**31 - 1, 2**64, 2**64 - 1, -(2**63)]),
    st.floats(-3, 3), st.sampled_from([1.0, 2.0, 128.0, 1e-6, 1e-7]), st.text(max_size=3), st.just([]),
    st.lists(st.integers(-1, 2) | st.none() | st.text(max_size=1), max_size=2), st.just({}),
)  # fmt: skip
FIELDS = st.sampled_from(sorted(set(ChatCompletionRequest.__struct_fields__) - {"messages"}))
OWN_SETTINGS = ServeSettings(model_name="m")


@pytest.fixture(scope="module")
def validator() -> Any:
    document = json.loads(openapi_json(Dialect.VLLM))
    schema = {"$ref": "#/components/schemas/ChatCompletionRequest", "components": document["components"]}
    return jsonschema_rs.validator_for(schema)


@settings(max_examples=400, deadline=None)
@given(field=FIELDS, value=VALUE)
def test_one_field_at_a_time(validator: Any, field: str, value: Any) -> None:
    body = {**HELLO, field: value}
    assert accepted(body) == validator.is_valid(body), body


MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "tool", "assistant", "", "critic"]) | st.none()},
    optional={
        "content": st.none() | st.sampled_from(["", "x"]) | st.just([]) | st.just([{"type": "text", "text": "x"}]),
        "tool_call_id": st.none() | st.just("c") | st.just(5),
        "tool_calls": st.none()
        | st.just([])
        | st.just([{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]),
    },
)


@settings(max_examples=300, deadline=None)
@given(message=MESSAGES)
def test_one_message_at_a_time(validator: Any, message: dict[str, Any]) -> None:
    body = {"model": "m", "messages": [message]}
    assert accepted(body) == validator.is_valid(body), body


def accepted(body: Any) -> bool:
    try:
        check_request(decode(body), VLLM.rules, OWN_SETTINGS)
    except RequestRefused:
        return False
    return True
