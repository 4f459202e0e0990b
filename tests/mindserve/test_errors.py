from __future__ import annotations

from decimal import Decimal

import pytest

from mindserve.errors import shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        (Decimal("1E+999"), "1E+999"),
        (Decimal("9" * 100), "9" * 64 + "…"),
        ("é\n", '"é\\n"'),
        ("x" * 100, '"' + "x" * 63 + "…"),
        ([1], "a list of 1 item"),
        ([], "a list of 0 items"),
        ({"a": 1}, "an object"),
    ],
)
def test_shown(value: object, text: str) -> None:
    assert shown(value) == text
