"""The spec's JSON Schema and what is generated from it agree on any body, but for what the spec leaves to rules."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codegen.dialects import view
from codegen.document import load
from codegen.model_view import models_document
from codegen.rules import read_rules
from mindserve.api.checks import PREDICATES, check_request
from mindserve.api.checks.breach import Subject
from mindserve.api.decode import decode_request
from mindserve.api.dialect import dialect_named
from mindserve.config.settings import Dialect, ServeSettings
from mindserve.errors import RequestRefused
from tests.codegen.edge_values import bodies

DOCUMENT = load(Path("spec/openapi.yaml")).data
VIEWS = {dialect: view(DOCUMENT, dialect) for dialect in Dialect}
REQUEST = {"$ref": "#/components/schemas/ChatCompletionRequest"}
# One strategy for each dialect, made once: their parts are made when first needed.
BODIES = st.one_of(
    st.tuples(st.just(dialect), bodies(document, document["components"]["schemas"]["ChatCompletionRequest"]))
    for dialect, document in VIEWS.items()
)
SETTINGS = settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
SERVE = ServeSettings(model_name="x")


@cache
def _validator(dialect: Dialect, *, as_the_models_see_it: bool) -> jsonschema_rs.Draft202012Validator:
    document = models_document(VIEWS[dialect]) if as_the_models_see_it else VIEWS[dialect]
    return jsonschema_rs.Draft202012Validator({**REQUEST, "components": document["components"]})


def _model_accepts(dialect: Dialect, body: Any) -> bool:
    try:
        dialect_named(dialect).requests.decoder.decode(json.dumps(body))
    except msgspec.ValidationError:
        return False
    return True


def _holds(value: Any, predicate: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return predicate(value) or any(_holds(item, predicate) for item in inner)


def _is_integral_float(value: Any) -> bool:
    return isinstance(value, float) and value == int(value)


def _is_beyond_int64(value: Any) -> bool:
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def _refusal(dialect: Dialect, body: Any) -> tuple[str, str] | None:
    """(stage, field) of what the server refuses before it looks at its model; None when it goes on."""
    own = dialect_named(dialect)
    try:
        request = decode_request(json.dumps(body).encode(), own.requests, max_json_depth=64)
    except RequestRefused as refused:
        return "decode", refused.field or ""
    try:
        check_request(request, own.rules, SERVE)
    except RequestRefused:
        subject = Subject(request=request, settings=SERVE)
        return "rule", next(name for name, rule in own.rules.items() if PREDICATES[name](subject, rule) is not None)
    return None


@SETTINGS
@given(BODIES)
def test_models_decode_exactly_what_their_part_of_the_schema_allows(drawn: tuple[Dialect, Any]) -> None:
    """Two known differences: 2.0 for an integer (the server's decoder takes it) and integers beyond int64 (a rule)."""
    dialect, body = drawn
    valid, accepted = _validator(dialect, as_the_models_see_it=True).is_valid(body), _model_accepts(dialect, body)
    if valid != accepted:
        known = _holds(body, _is_integral_float) if valid else _holds(body, _is_beyond_int64)
        assert known, (valid, body)


@SETTINGS
@given(BODIES)
def test_the_server_refuses_all_that_the_schema_refuses(drawn: tuple[Dialect, Any]) -> None:
    dialect, body = drawn
    if not _validator(dialect, as_the_models_see_it=False).is_valid(body):
        assert _refusal(dialect, body) is not None


# What JSON Schema cannot say: totals over several values, comparisons of fields, texts within texts.
BEYOND_JSON_SCHEMA = {
    *("messages-text-length", "media-parts-limit", "stop-total-length", "strict-schema-size", "response-schema-size"),
    *("best-of-below-n", "best-of-differs-from-n-in-stream", "tool-choice-unknown-tool", "tool-call-arguments-json"),
    "tool-call-arguments-values",
}


@SETTINGS
@given(BODIES)
def test_what_the_schema_allows_is_refused_only_by_rules_that_it_cannot_tell(drawn: tuple[Dialect, Any]) -> None:
    dialect, body = drawn
    if _validator(dialect, as_the_models_see_it=False).is_valid(body):
        refusal = _refusal(dialect, body)
        assert refusal is None or (refusal[0] == "rule" and refusal[1] in BEYOND_JSON_SCHEMA), refusal


EDGES = [
    ('"n": 1', True),
    ('"n": 1.0', True),
    ('"n": 1e0', True),
    ('"n": 1.5', False),
    ('"n": true', False),
    ('"n": "1"', False),
    ('"n": 128', True),
    ('"n": 129', False),
    ('"temperature": 1', True),
    ('"temperature": false', False),
    ('"temperature": -0.0', True),
    ('"top_p": 0.000001', False),
    ('"top_p": 0.0000011', True),
    ('"repetition_penalty": 0', False),
    ('"top_k": 0', False),
    ('"top_k": -1', True),
    ('"top_k": -2', False),
    ('"top_k": 2147483648', False),
    ('"seed": 18446744073709551615', True),
    ('"seed": 18446744073709551616', False),
    ('"seed": -1', False),
    ('"stop": []', True),
    ('"stop": ""', False),
    ('"stop": [""]', False),
    ('"stop_token_ids": [1, "2", 3.5, true, 4294967296]', True),
    ('"stop_token_ids": [null]', False),
    ('"chat_template_kwargs": {"enable_thinking": "yes"}', False),
    ('"chat_template_kwargs": {"messages": []}', False),
    ('"logprobs": false, "top_logprobs": 1', False),
    ('"unheard_of": {"a": [1]}', True),
    ('"stream": null', True),
    ('"stream": "true"', False),
]


OPENAI_EDGES = [
    ('"logit_bias": {}', True),
    ('"logit_bias": {"0": -100, "17": 100.0, "4294967295": 1}', True),
    ('"logit_bias": {"1": 100.5}', False),
    ('"logit_bias": {"1": "1"}', False),
    ('"logit_bias": {"01": 1}', False),
    ('"logit_bias": {"a": 1}', False),
    ('"logit_bias": {"-1": 1}', False),
    ('"logit_bias": null, "metadata": null, "user": null, "store": null, "parallel_tool_calls": null', True),
    ('"parallel_tool_calls": "no"', False),
    ('"metadata": {"a": "b"}', True),
    ('"metadata": {"a": 5}', False),
    ('"user": 5', False),
    ('"store": 1', False),
    ('"n": 2, "temperature": 0', True),
]


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize(("fields", "valid"), EDGES, ids=[fields for fields, _ in EDGES])
def test_schema_and_server_agree_on_the_edges(dialect: Dialect, fields: str, valid: bool) -> None:
    _assert_edge(dialect, fields, valid)


@pytest.mark.parametrize(("fields", "valid"), OPENAI_EDGES, ids=[fields for fields, _ in OPENAI_EDGES])
def test_schema_and_server_agree_on_the_edges_of_the_other_dialect(fields: str, valid: bool) -> None:
    _assert_edge(Dialect.OPENAI, fields, valid)
    if "temperature" not in fields:
        _assert_edge(Dialect.VLLM, fields, True)  # unknown fields


def _assert_edge(dialect: Dialect, fields: str, valid: bool) -> None:
    text = f'{{"model": "x", "messages": [{{"role": "user", "content": "hi"}}], {fields}}}'
    body = json.loads(text)
    assert (_validator(dialect, as_the_models_see_it=False).is_valid(body), _refusal(dialect, body) is None) == (
        valid,
        valid,
    )


def test_the_rules_beyond_json_schema_are_rules() -> None:
    assert {rule.id for rule in read_rules(DOCUMENT)} >= BEYOND_JSON_SCHEMA
