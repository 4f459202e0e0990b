"""The event reader: any split gives the same frames, a foreign reader agrees, and each wrong byte is told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from httpx_sse._decoders import SSEDecoder
from hypothesis import given
from hypothesis import strategies as st

from conformance.sse import Frame, FrameTooLong, SseReader, frame_of

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=20)


def _read(pieces: list[bytes], limit: int = 10_000) -> tuple[list[Frame], bytes]:
    reader = SseReader(limit)
    return [frame for piece in pieces for frame in reader.feed(piece)], reader.rest


def _cut(whole: bytes, places: list[int]) -> Iterator[bytes]:
    ends = sorted({place % (len(whole) + 1) for place in places})
    for start, end in zip([0, *ends], [*ends, len(whole)], strict=True):
        yield whole[start:end]


@given(st.lists(TEXTS, max_size=6), st.lists(st.integers(min_value=0), max_size=12))
def test_any_split_gives_the_same_frames(texts: list[str], places: list[int]) -> None:
    whole = "".join(f"data: {text}\n\n" for text in texts).encode()
    frames, rest = _read(list(_cut(whole, places)))
    assert [frame.data for frame in frames] == texts
    assert [frame.faults for frame in frames] == [()] * len(texts)
    assert b"".join(frame.raw for frame in frames) == whole
    assert rest == b""


@given(st.lists(st.sampled_from([b"data:", b"data: ", b"x", b"\n", b"\r\n", b"\r", b": c", b"id: 1"]), max_size=12))
def test_a_foreign_reader_agrees_on_legal_streams(words: list[bytes]) -> None:
    """Whatever is said, and however lines end: the data of the events is what another project's reader finds."""
    whole = b"".join(words).replace(b"\r\n", b"\n").replace(b"\r", b"\n") + b"\n\n"
    frames, _ = _read([whole])
    decoder = SSEDecoder()
    events = [event for line in whole.decode().split("\n") if (event := decoder.decode(line)) is not None]
    assert [frame.data for frame in frames if frame.data] == [event.data for event in events if event.data]


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (b"data: x\r\n\r\n", "carriage return"),
        (b"data:x\n\n", "lacks the blank"),
        (b"data: x\ndata: y\n\n", "2 data lines"),
        (b"event: x\ndata: y\n\n", "has the line 'event: x'"),
        (b": comment\n\n", "has the line ': comment'"),
        (b"data: \xff\n\n", "not UTF-8 at byte 6"),
        (b"\n\n", "has the line ''"),
    ],
)
def test_wrong_bytes_are_told(raw: bytes, fault: str) -> None:
    assert any(fault in one for one in frame_of(raw).faults)


def test_what_is_legal_is_read_all_the_same() -> None:
    assert frame_of(b"data:x\r\ndata: y\r\n\r\n").data == "x\ny"


def test_an_open_frame_is_kept_as_the_rest() -> None:
    assert _read([b"data: x\n\ndata: y\n"])[1] == b"data: y\n"


def test_a_frame_without_end_is_given_up() -> None:
    reader = SseReader(100)
    assert list(reader.feed(b"x" * 100)) == []
    with pytest.raises(FrameTooLong):
        list(reader.feed(b"x"))
