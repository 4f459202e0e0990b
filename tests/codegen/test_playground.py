"""What the browser page is told of a request's fields: all of them, with the bounds of the contract."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from codegen import playground
from codegen.dialects import DIALECTS, view
from codegen.document import load
from codegen.outputs import SPEC

DOCUMENT = load(SPEC).data
VIEWS = {dialect: view(DOCUMENT, dialect) for dialect in DIALECTS}


BOUNDS = {"min": "minimum", "max": "maximum", "above": "exclusiveMinimum", "below": "exclusiveMaximum"}


def _fields(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {field["name"]: field for field in json.loads(playground.generate({"one": document}))["one"]}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_field_of_a_request_is_told_in_the_order_of_the_contract(dialect: str) -> None:
    properties = VIEWS[dialect]["components"]["schemas"]["ChatCompletionRequest"]["properties"]
    fields = _fields(VIEWS[dialect])
    assert list(fields) == list(properties)
    for name, schema in properties.items():
        written = {} if "anyOf" in schema else schema
        for short, keyword in BOUNDS.items():
            assert fields[name].get(short) == (repr(written[keyword]) if keyword in written else None), name


def test_a_new_field_appears_by_itself() -> None:
    document = copy.deepcopy(VIEWS["vllm"])
    request = document["components"]["schemas"]["ChatCompletionRequest"]
    request["properties"]["warmth"] = {
        "description": "How warm, see [Tool](#tool) or `stop`.",
        "type": ["integer", "null"],
        "exclusiveMinimum": 0,
        "maximum": 18446744073709551615,
        "default": 3,
    }
    request["required"].append("warmth")
    assert _fields(document)["warmth"] == {
        "name": "warmth",
        "kind": "integer",
        "type": "integer",
        "bounds": "> 0, ≤ 18,446,744,073,709,551,615",
        "default": "3",
        "notes": "How warm, see Tool or stop.",
        "source": "",
        "required": True,
        "admits_text": False,
        "admits_null": True,
        "max": "18446744073709551615",
        "above": "0",
    }


KINDS = [
    ({"type": ["boolean", "null"]}, "boolean"),
    ({"type": "number"}, "number"),
    ({"type": "string"}, "text"),
    ({"type": "string", "enum": ["a", "b"]}, "choice"),
    ({"type": ["integer", "string"]}, "json"),
    ({"anyOf": [{"type": "string"}, {"type": "array"}]}, "json"),
    ({"$ref": "#/components/schemas/Tool"}, "json"),
    ({"type": "array", "items": {}}, "json"),
    ({}, "json"),
]


@pytest.mark.parametrize(("schema", "kind"), KINDS)
def test_the_kind_of_control(schema: dict[str, Any], kind: str) -> None:
    document = copy.deepcopy(VIEWS["vllm"])
    document["components"]["schemas"]["ChatCompletionRequest"]["properties"]["new"] = schema
    field = _fields(document)["new"]
    assert field["kind"] == kind
    assert field["admits_text"] == ("string" in json.dumps(schema))
    assert field.get("values") == schema.get("enum")


def test_a_contract_without_a_body_has_no_fields() -> None:
    assert _fields({"paths": {"/x": {"get": {"responses": {}}}}}) == {}
