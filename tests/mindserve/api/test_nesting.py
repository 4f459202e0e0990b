from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mindserve.api.nesting import exceeds_depth


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
    assert exceeds_depth(json.dumps(value).encode(), limit) == (depth_of(value) > limit)


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
    ],
)
def test_examples(body: bytes, limit: int, *, exceeds: bool) -> None:
    assert exceeds_depth(body, limit) is exceeds
