from __future__ import annotations

from typing import Any

import pytest

from mindserve.api.expectation import MISSING, Expectations, NumberText, shown, value_at

DOCUMENT: dict[str, Any] = {
    "components": {
        "schemas": {
            "Root": {
                "type": "object",
                "properties": {
                    "shape": {"oneOf": [{"$ref": "#/components/schemas/A"}, {"$ref": "#/components/schemas/B"}]},
                    "age": {"type": ["integer", "null"], "exclusiveMinimum": 0, "exclusiveMaximum": 9},
                    "names": {"type": "array", "maxItems": 3, "items": {"type": "string", "minLength": 2}},
                    "word": {"enum": ["x", "y", None]},
                    "free": {},
                },
            },
            "A": {"type": "object", "properties": {"kind": {"const": "a"}, "size": {"type": "boolean"}}},
            "B": {"type": "object", "properties": {"kind": {"const": "b"}, "size": {"type": "number", "minimum": 1}}},
        }
    }
}


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (("age",), {}, "an integer, greater than 0 and less than 9"),
        (("names",), {}, "a list of 0 to 3 items"),
        (("names", 1), {"names": ["aa", 1]}, "a string of at least 2 characters"),
        (("word",), {}, 'one of "x", "y"'),
        (("shape", "size"), {"shape": {"kind": "a", "size": 1}}, "a boolean"),
        (("shape", "size"), {"shape": {"kind": "b", "size": 0}}, "a number, at least 1"),
        (("shape", "size"), {"shape": {"size": 0}}, "a boolean or a number, at least 1"),
        (("shape", "kind"), {"shape": {"kind": "c"}}, '"a" or "b"'),
        (("shape",), {}, "an object"),
        (("free",), {}, None),
        (("unknown", "below"), {}, None),
    ],
)
def test_words(path: tuple[str | int, ...], body: object, expected: str | None) -> None:
    assert Expectations(DOCUMENT, "Root").at(path, body) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        (NumberText("1e+999"), "1e+999"),
        (NumberText("1" * 100), "1" * 64 + "…"),
        ("é\n", '"é\\n"'),
        ("x" * 100, '"' + "x" * 63 + "…"),
        ([1], "a list of 1 item"),
        ([], "a list of 0 items"),
        ({"a": 1}, "an object"),
        (MISSING, "nothing"),
    ],
)
def test_shown(value: object, text: str) -> None:
    assert shown(value) == text


def test_value_at() -> None:
    assert value_at({"a": [{"b": 1}]}, ("a", 0, "b")) == 1
    for path in (("a", 1), ("a", "b"), ("x",), ("a", 0, "b", "c")):
        assert value_at({"a": [{"b": 1}]}, path) is MISSING
