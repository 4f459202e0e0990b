"""An event of 64 MB over a socket arrives whole, and few copies of it are held at a time."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from mindserve_client.sse import DEFAULT_MAX_EVENT_BYTES
from tests.mindserve_client.asking import KINDS, asking
from tests.mindserve_client.wire import CHUNK, events, wire

TEXT = "0123456789abcdef" * 4_000_000
LARGE = CHUNK.model_dump_json(exclude_unset=True).replace('"hi"', f'"{TEXT}"')
MOST_COPIES = 5
"""The line as it is collected, its value, the value as text and what the model has of it; one to spare."""

pytestmark = pytest.mark.parametrize("kind", KINDS)


async def test_an_event_of_64_mb(kind: str) -> None:
    assert len(TEXT) == 64_000_000 < len(LARGE) < DEFAULT_MAX_EVENT_BYTES
    chunks: list[Any] = []
    with wire(events(LARGE, "[DONE]")) as server:
        async with asking(kind, server.url) as client:
            tracemalloc.start()
            try:
                await client.chunks(chunks)
                _, peak_bytes = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
    assert [chunk.choices[0].delta.content == TEXT for chunk in chunks] == [True]
    assert peak_bytes < MOST_COPIES * len(LARGE)
