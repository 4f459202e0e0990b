"""What becomes of answers: models, typed errors of both dialects, clear words for what is neither."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from mindserve.api.contract import openapi_json
from mindserve.config.settings import Dialect
from mindserve_client import APIStatusError, ErrorDetails, InvalidResponse, StreamFailed, models, openai_models
from mindserve_client.answers import parse, parse_event, status_error
from mindserve_client.errors import STATUS_ERRORS
from tests.mindserve_client.wire import CHUNK, COMPLETION

ROOT = Path(__file__).parents[2]
CONTRACT = yaml.safe_load((ROOT / "spec" / "openapi.yaml").read_text("utf-8"))
VLLM_ERROR = '{"error": "n is wrong", "error_type": "Input Validation Error"}'
OPENAI_ERROR = '{"error": {"message": "n is wrong", "type": "invalid_request_error", "param": "n", "code": "odd"}}'


def test_every_status_of_the_contract_has_an_error_of_its_name() -> None:
    responses = CONTRACT["paths"]["/v1/chat/completions"]["post"]["responses"]
    named = {int(status): item["$ref"].rsplit("/", 1)[-1] for status, item in responses.items() if status != "200"}
    assert {status: error.__name__ for status, error in STATUS_ERRORS.items()} == named


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("root", ["ChatCompletion", "ChatCompletionChunk", "ModelList"])
def test_every_field_of_answers_is_a_field_of_their_models(dialect: Dialect, root: str) -> None:
    """Of all models inside of them, too, the times of MindIE among them."""
    schemas = json.loads(openapi_json(dialect))["components"]["schemas"]
    of_dialect: Any = openai_models if dialect is Dialect.OPENAI else models
    model = getattr(of_dialect, root, None) or getattr(models, root)
    seen = {one.__name__: list(one.model_fields) for one in _inside(model)}
    assert {"Choice", "Usage", "AssistantMessage"} <= set(seen) or root != "ChatCompletion"
    assert seen == {name: list(schemas[name]["properties"]) for name in seen}
    timed = {"prefill_time", "decode_time_arr"} & set(seen[root])
    assert len(timed) == 2 * (root == "ChatCompletion" and dialect is Dialect.VLLM)


def _inside(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A model and those that its fields are made of."""
    yield model
    for field in model.model_fields.values():
        yield from _models_of(field.annotation)


def _models_of(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield from _inside(annotation)
    for argument in get_args(annotation):
        yield from _models_of(argument)


@pytest.mark.parametrize("status", [*STATUS_ERRORS, 302, 418, 502])
@pytest.mark.parametrize(
    ("body", "details"),
    [
        (VLLM_ERROR, ErrorDetails("n is wrong", "Input Validation Error")),
        (OPENAI_ERROR, ErrorDetails("n is wrong", "invalid_request_error", "n", "odd")),
        ('{"error": "x", "error_type": "A class of tomorrow"}', ErrorDetails("x", "A class of tomorrow")),
        ('{"error": {"message": "x", "code": 5}}', ErrorDetails("x")),
        ("<h1>Bad gateway</h1>", ErrorDetails("<h1>Bad gateway</h1>")),
        ('{"error": 5}', ErrorDetails('{"error": 5}')),
        ("[" * 100_000, ErrorDetails("[" * 500)),
        ("", ErrorDetails("no reason given")),
    ],
)
def test_errors_of_both_dialects_and_of_others(status: int, body: str, details: ErrorDetails) -> None:
    error = status_error(status, {"a": "b"}, body.encode())
    assert type(error) is STATUS_ERRORS.get(status, APIStatusError)
    assert error.details == details
    assert (error.message, error.type, error.param, error.code) == (
        details.message,
        details.type,
        details.param,
        details.code,
    )
    assert (error.status_code, error.headers) == (status, {"a": "b"})
    assert str(error) == f"{status}: {details.message}"


@pytest.mark.parametrize("data", [VLLM_ERROR, OPENAI_ERROR])
def test_a_failure_in_a_stream_is_an_error(data: str) -> None:
    with pytest.raises(StreamFailed, match=r"^n is wrong$"):
        parse_event(models.ChatCompletionChunk, data)


def test_fields_that_the_contract_does_not_know_are_kept() -> None:
    body: dict[str, Any] = json.loads(COMPLETION.model_dump_json(exclude_unset=True))
    body["choices"][0]["message"]["odd"] = body["odd"] = {"a": [1]}
    answer = parse(models.ChatCompletion, json.dumps(body))
    assert answer.model_extra == answer.choices[0].message.model_extra == {"odd": {"a": [1]}}
    assert json.loads(answer.model_dump_json(exclude_unset=True)) == body


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("{}", "the answer is no ChatCompletion: id: Field required"),
        ("<html>", "the answer is no ChatCompletion: Invalid JSON"),
        ("", "the answer is no ChatCompletion: Invalid JSON"),
        (
            COMPLETION.model_dump_json().replace('"hi"', "5"),
            "choices.0.message.content: Input should be a valid string",
        ),
        (COMPLETION.model_dump_json().replace('"stop"', '"odd"'), "choices.0.finish_reason"),
    ],
)
def test_what_is_no_answer_is_told(body: str, says: str) -> None:
    with pytest.raises(InvalidResponse) as told:
        parse(models.ChatCompletion, body)
    assert says in str(told.value)
    assert told.value.text == body[:500]


def test_bounds_of_answers_are_nobodys_business() -> None:
    body = COMPLETION.model_dump_json(exclude_unset=True).replace("endpoint_common_0", "cmpl-7")
    assert parse(models.ChatCompletion, body).id == "cmpl-7"


def test_a_chunk_of_the_openai_dialect() -> None:
    body = json.loads(CHUNK.model_dump_json(exclude_unset=True))
    body["choices"] = []
    body["usage"] = None
    chunk = parse_event(openai_models.ChatCompletionChunk, json.dumps(body))
    assert chunk.usage is None
