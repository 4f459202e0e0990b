"""The books of the encoder cache: within its limit, the least recently used leaves first, what is in use stays."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mindserve_engine.native.media.encoder_cache import EncoderCache


def filled(*names: bytes, limit: int = 30) -> EncoderCache:
    """Each of one token of 10 bytes."""
    cache = EncoderCache(limit_bytes=limit, token_bytes=10)
    for name in names:
        assert cache.make_room(1, frozenset()) == []
        cache.add(name, 1)
    return cache


def test_the_least_recently_used_leaves_first() -> None:
    cache = filled(b"a", b"b", b"c")
    cache.use(b"a")
    assert cache.make_room(1, frozenset()) == [b"b"]
    assert (b"a" in cache, b"b" in cache, cache.num_bytes) == (True, False, 20)


def test_what_is_in_use_stays_and_what_has_no_room_waits() -> None:
    cache = filled(b"a", b"b", b"c")
    assert cache.make_room(2, {b"a"}) == [b"b", b"c"]
    cache = filled(b"a", b"b", b"c")
    assert cache.make_room(3, {b"a"}) is None
    assert (len(cache), cache.num_bytes) == (3, 30)


@pytest.mark.parametrize("num_tokens", [3, 4, 100])
def test_one_alone_may_be_larger_than_the_limit(num_tokens: int) -> None:
    assert filled(b"a", b"b").make_room(num_tokens, frozenset()) == [b"a", b"b"]


@given(
    st.integers(0, 60),
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4), st.frozensets(st.integers(0, 9)), st.booleans())),
)
def test_never_above_the_limit_with_more_than_one(
    limit: int, steps: list[tuple[int, int, frozenset[int], bool]]
) -> None:
    cache = EncoderCache(limit_bytes=limit, token_bytes=10)
    held: OrderedDict[bytes, int] = OrderedDict()
    for name, num_tokens, in_use, is_used in steps:
        digest = bytes([name])
        if digest in cache:
            if is_used:
                cache.use(digest)
                held.move_to_end(digest)
            continue
        dropped = cache.make_room(num_tokens, {bytes([one]) for one in in_use})
        if dropped is None:
            continue
        assert dropped == [one for one in held if one in dropped], "the younger one left first"
        for one in dropped:
            assert one[0] not in in_use
            del held[one]
        cache.add(digest, num_tokens)
        held[digest] = num_tokens
        assert cache.num_bytes == 10 * sum(held.values())
        assert cache.num_bytes <= limit or len(cache) == 1
