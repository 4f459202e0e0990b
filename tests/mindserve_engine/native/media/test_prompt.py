"""Where media lie in what a step runs, and what keys the blocks they lie in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mindserve_engine.native.media.prompt import PromptMedia
from mindserve_engine.types import GenerationRequest, MediaItem, MediaKind


def item(name: int, start: int, num_tokens: int) -> MediaItem:
    return MediaItem(
        kind=MediaKind.AUDIO, start=start, num_tokens=num_tokens, shape=(1,), data=b"", digest=bytes([name] * 32)
    )


def of(num_tokens: int, *items: MediaItem) -> PromptMedia:
    request = GenerationRequest(request_id="r", prompt_token_ids=[0] * num_tokens, max_tokens=1, media=items)
    media = PromptMedia.of(request, None)
    assert media is not None
    return media


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=4), st.integers(1, 7))
def test_chunks_of_any_size_take_in_each_embedding_once(parts: list[tuple[int, int]], size: int) -> None:
    at, items = 0, []
    for number, (gap, num_tokens) in enumerate(parts):
        items.append(item(number, at + gap, num_tokens))
        at += gap + num_tokens
    media = of(at + 1, *items)
    found = []
    for start in range(0, at + 1, size):
        for overlay in media.overlays(start, min(start + size, at + 1), row=100):
            rows = range(overlay.row - 100 + start, overlay.row - 100 + start + overlay.stop - overlay.start)
            found += zip(rows, [overlay.digest] * len(rows), range(overlay.start, overlay.stop), strict=True)
    assert found == [(one.start + offset, one.digest, offset) for one in items for offset in range(one.num_tokens)]


def test_what_is_missing() -> None:
    media = of(20, item(1, 2, 5), item(2, 9, 5))
    first, second = media.items
    assert media.missing(0, {}) is first
    assert media.missing(6, {}) is first
    assert media.missing(7, {}) is second
    assert media.missing(0, {first.digest}) is second
    assert media.missing(14, {}) is None


def test_the_key_of_a_block_tells_items_and_places_apart() -> None:
    keys = [
        of(20, item(1, 2, 9)).key(4, 8),
        of(20, item(2, 2, 9)).key(4, 8),
        of(20, item(1, 3, 9)).key(4, 8),
        of(20, item(1, 2, 4), item(2, 6, 4)).key(4, 8),
    ]
    assert len(set(keys)) == 4
    assert of(20, item(1, 2, 9)).key(0, 2) == of(20, item(1, 2, 9)).key(11, 15) == b""
