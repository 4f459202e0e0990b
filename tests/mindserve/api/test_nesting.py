from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mindserve.api.nesting import Excess, find_excess


def depth_of(value: Any) -> int:
    """The definition, recursively."""
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


TEXT = st.text(st.sampled_from('[]{}"\\a,:\n'), max_size=6)
VALUES = st.recursive(
    st.none() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(value=VALUES, limit=st.integers(0, 6))
def test_it_is_the_depth_of_the_value(value: Any, limit: int) -> None:
    found = find_excess(json.dumps(value).encode(), max_depth=limit)
    assert found is (Excess.DEPTH if depth_of(value) > limit else None)


def size_of(value: Any) -> int:
    """Arrays, objects and commas."""
    if isinstance(value, dict | list):
        inner = list(value.values()) if isinstance(value, dict) else value
        return 1 + max(len(inner) - 1, 0) + sum(map(size_of, inner))
    return 0


@settings(max_examples=300, deadline=None)
@given(value=VALUES, limit=st.integers(0, 12))
def test_it_is_the_number_of_values(value: Any, limit: int) -> None:
    found = find_excess(json.dumps(value).encode(), max_depth=99, max_values=limit)
    assert found is (Excess.VALUES if size_of(value) > limit else None)


@pytest.mark.parametrize(
    ("body", "limit", "exceeds"),
    [
        (b"[[1]]", 2, False),
        (b"[[1]]", 1, True),
        (b'["[[[["]', 1, False),
        (b'["\\"[[[["]', 1, False),
        (b'["\\\\",[1]]', 1, True),
        (b"[" * 100_000, 10, True),
        (b"[][][][]", 1, False),
        (b'"unterminated [[[[[[', 2, False),
        (b"", 0, False),
        (b'["[" "["]', 1, False),
        (b'["","[","",[]]', 1, True),
        (b'["\\\\\\"[[["]', 1, False),
        (b'"\\', 0, False),
    ],
)
def test_examples(body: bytes, limit: int, *, exceeds: bool) -> None:
    assert (find_excess(body, max_depth=limit) is Excess.DEPTH) is exceeds


def test_commas_of_a_text_are_no_values() -> None:
    assert find_excess(b'["' + b"," * 100 + b'"]', max_depth=1, max_values=10) is None
    assert find_excess(b"[" + b"1," * 100 + b"1]", max_depth=1, max_values=10) is Excess.VALUES
    assert find_excess(b"," * 10 + b"[", max_depth=0, max_values=10) is Excess.DEPTH
