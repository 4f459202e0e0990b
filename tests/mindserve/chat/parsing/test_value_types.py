"""Values that are written without quotes get a type that the tool's schema allows."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from mindserve.chat.parsing.families.qwen3_coder import QWEN3_CODER
from mindserve.chat.parsing.machine import AnswerParser, CallFormat
from mindserve.chat.parsing.pieces import Call
from mindserve.chat.parsing.toolbox import Toolbox
from mindserve.chat.parsing.value_types import ANY_TYPE, MAX_PARTS, json_type, types_of

STRING, NULL, INTEGER = {"type": "string"}, {"type": "null"}, {"type": "integer"}
DEFINED = {"zip": STRING, "loop": {"$ref": "#/$defs/loop"}, "size": {"enum": ["1", "2"]}}

VALUES: list[tuple[dict[str, Any], str, Any]] = [
    ({"type": ["string", "null"]}, "0123", "0123"),
    ({"type": ["string", "null"]}, "123", "123"),
    ({"type": ["string", "null"]}, "True", "True"),
    ({"type": ["string", "null"]}, '["a"]', '["a"]'),
    ({"type": ["string", "null"]}, "null", None),
    ({"type": ["string", "null"]}, "None", None),
    ({"type": ["string", "null"]}, '"123"', "123"),
    ({"type": ["string", "null"], "enum": ["1", "2"]}, "1", "1"),
    ({"anyOf": [STRING, NULL]}, "123", "123"),
    ({"anyOf": [STRING, NULL]}, "null", None),
    ({"oneOf": [STRING, INTEGER]}, "123", 123),
    ({"oneOf": [STRING, INTEGER]}, "1.5", "1.5"),
    ({"oneOf": [STRING, {"type": "number"}]}, "1", 1),
    ({"const": "1"}, "1", "1"),
    ({"const": 1}, "1", 1),
    ({"enum": ["1", None]}, "1", "1"),
    ({"enum": ["1", None]}, "null", None),
    ({"$ref": "#/$defs/zip"}, "123", "123"),
    ({"anyOf": [{"$ref": "#/$defs/zip"}, NULL]}, "123", "123"),
    ({"anyOf": [{"$ref": "#/$defs/size"}, NULL]}, "2", "2"),
    ({"allOf": [{"$ref": "#/$defs/size"}]}, "2", "2"),
    ({"$ref": "#/$defs/loop"}, "123", 123),
    ({"$ref": "#/$defs/nowhere"}, "123", 123),
    ({}, "123", 123),
    ({"anyOf": [STRING, {}]}, "123", 123),
    (INTEGER, "many", "many"),
    ({"type": "boolean"}, "True", True),
]


@pytest.mark.parametrize(("schema", "written", "value"), VALUES)
def test_a_value_has_a_type_that_the_schema_allows(schema: dict[str, Any], written: str, value: Any) -> None:
    root = {"properties": {"z": schema}, "$defs": DEFINED}
    parser = AnswerParser(calls=CallFormat(QWEN3_CODER, Toolbox([("f", root)])))
    (call,) = parser.feed(f"<tool_call><function=f><parameter=z>\n{written}\n</parameter></function></tool_call>")
    assert isinstance(call, Call)
    told = json.loads(call.arguments)["z"]
    assert (told, type(told)) == (value, type(value))


@pytest.mark.parametrize("value", [None, True, 0, 1.5, "", [], {}])
def test_types_have_the_names_of_json_schema(value: Any) -> None:
    assert json_type(value) in ANY_TYPE
    assert jsonschema_rs.is_valid({"type": json_type(value)}, value)
    assert types_of({"enum": [value]}, {}) == types_of({"const": value}, {}) == {json_type(value)}


@pytest.mark.parametrize("key", ["anyOf", "oneOf", "allOf"])
@pytest.mark.parametrize("width", [1, 2, 100_000])
def test_schemas_in_circles_are_left_after_a_while(key: str, width: int) -> None:
    """With two branches a reader without bounds would take as many steps as there are walks through the circle."""
    circle = {key: [{"$ref": "#/$defs/circle"}] * width}
    assert types_of(circle, {"$defs": {"circle": circle}}) == ANY_TYPE
    assert types_of({"anyOf": [STRING] * MAX_PARTS}, {}) == ANY_TYPE
    assert types_of({"anyOf": [STRING] * (MAX_PARTS - 1)}, {}) == {"string"}
