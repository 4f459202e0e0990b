from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mindserve.api.expectation import MISSING, value_at
from mindserve.api.trace import find_unrepresentable, trace
from mindserve.errors import NumberText

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=10,
)


def paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for step, member in inner for found in paths(member, (*path, step)))]


def shallow(value: Any) -> Any:
    """What is left of a value at the end of a path."""
    if isinstance(value, int) and not isinstance(value, bool):
        return NumberText(str(value))
    return {} if isinstance(value, dict) else len(value) if isinstance(value, list) else value


@given(value=VALUES, data=st.data())
def test_every_place_holds_what_it_holds_in_the_whole(value: Any, data: Any) -> None:
    path = data.draw(st.sampled_from(paths(value)))
    found = value_at(trace(json.dumps(value).encode(), path), path)
    assert (len(found) if isinstance(found, list) else found) == shallow(value_at(value, path))


def test_short_strings_beside_the_path_are_kept() -> None:
    text = b'{"type": "a", "long": "' + b"x" * 100 + b'", "n": 1, "in": {"x": 1e400}}'
    assert trace(text, ("in", "x")) == {"type": "a", "in": {"x": NumberText("1e400")}}


@pytest.mark.parametrize("path", [("b",), (0,), ("a", 5), ("a", "x")])
def test_what_is_not_there_is_missing(path: tuple[str | int, ...]) -> None:
    assert value_at(trace(b'{"a": [1]}', path), path) is MISSING


def test_broken_json_anywhere_is_told() -> None:
    with pytest.raises(msgspec.DecodeError):
        trace(b'{"a": 0, "b": 0x1}', ("a",))


def test_the_place_of_a_number_that_nothing_holds() -> None:
    text = b'{"a": [{"b": 1, "c": [2, {"d": -1e999}]}, 1e999]}'
    assert find_unrepresentable(text, ("a",)) == ("a", 0, "c", 1, "d")
    assert find_unrepresentable(text, ("a", 1)) == ("a", 1)
