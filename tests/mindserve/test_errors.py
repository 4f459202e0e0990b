from __future__ import annotations

import pytest

from mindserve.errors import NumberText, shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        (NumberText("1e+999"), "1e+999"),
        (NumberText("9" * 100), "9" * 64 + "…"),
        ("é\n", '"é\\n"'),
        ("x" * 100, '"' + "x" * 63 + "…"),
        ([1], "a list of 1 item"),
        ([], "a list of 0 items"),
        ({"a": 1}, "an object"),
    ],
)
def test_shown(value: object, text: str) -> None:
    assert shown(value) == text
