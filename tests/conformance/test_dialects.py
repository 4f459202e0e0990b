"""The contract as each dialect has it: the suite's own reading of the marks is the code generator's."""

from __future__ import annotations

from typing import Any

import pytest

from codegen.dialects import view as generated_view
from conformance.contract import load_contract
from conformance.dialects import DIALECTS, spoken
from conformance.files import SPEC, read_yaml
from mindserve.api.dialect import dialect_named
from mindserve.errors import RefusalKind, RequestRefused

ROOTS = ("ChatCompletionRequest", "ChatCompletion", "ChatCompletionChunk", "ModelList", "HealthStatus")


def _unmarked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: _unmarked(item) for key, item in value.items() if key != "x-dialect"}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_both_read_the_marks_alike(dialect: str) -> None:
    contract = load_contract(dialect)
    expected = generated_view(read_yaml(SPEC / "openapi.yaml"), dialect)
    for name in contract.reachable(*ROOTS, contract.dialect.error_body):
        assert _unmarked(contract.schemas[name]) == expected["components"]["schemas"][name], name
    operation = [one["paths"]["/v1/chat/completions"]["post"]["x-rules"] for one in (contract.document, expected)]
    assert [rule["id"] for rule in operation[0]] == [rule["id"] for rule in operation[1]]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", RefusalKind)
def test_the_contract_knows_the_class_of_every_refusal(dialect: str, kind: RefusalKind) -> None:
    """The server's table of statuses and classes, and the contract's."""
    contract = load_contract(dialect)
    wire = dialect_named(dialect).error(RequestRefused("no", kind=kind))
    told = wire.body.error.type if dialect == "openai" else wire.body.error_type
    assert told == contract.error_types[wire.status]


def test_the_header_wins_whatever_its_case() -> None:
    assert spoken({}, "vllm") == "vllm"
    assert spoken({"x-MINDSERVE-dialect": "openai"}, "vllm") == "openai"
    assert spoken({"X-Mindserve-Dialect": "OpenAI"}, "vllm") == "vllm"
