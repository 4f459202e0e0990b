"""The event decoder: any split gives the same events, other projects' readers agree, memory is bounded."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from httpx_sse._decoders import SSEDecoder as HttpxDecoder
from hypothesis import given
from hypothesis import strategies as st
from openai._streaming import SSEDecoder as OpenAIDecoder

from mindserve_client import Event, EventDecoder, EventTooLarge

STREAM = (
    "\ufeffdata: one\n\n: comment\r\ndata:two\r\ndata:  three\r\n\r\nevent: odd\rid: 7\rretry: 250\rdata: é\u4e16🚀\r\r"
    "data\n\nid\ndata: {}\n\nnonsense: x\n\nevent: without data\n\ndata: \u2028 stays\n\ndata: [DONE]\n\ndata: open\n"
).encode()
EVENTS = [
    Event("one"),
    Event("two\n three"),
    Event("é\u4e16🚀", "odd", "7", 250),
    Event("", id="7"),
    Event("{}"),
    Event("\u2028 stays"),
    Event("[DONE]"),
]
LINES = st.lists(
    st.sampled_from(
        ["data: x", "data:", "data", "data: é", "event: e", "id: 1", "retry: 5", "retry: no", ": c", "", "odd"]
    ),
    max_size=14,
)
ENDS = st.lists(st.sampled_from(["\n", "\r", "\r\n"]), min_size=1, max_size=5)


def _read(pieces: list[bytes]) -> list[Event]:
    decoder = EventDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)]


def _cut(whole: bytes, places: list[int]) -> Iterator[bytes]:
    ends = sorted({place % (len(whole) + 1) for place in places})
    for start, end in zip([0, *ends], [*ends, len(whole)], strict=True):
        yield whole[start:end]


def test_what_a_stream_holds() -> None:
    assert _read([STREAM]) == EVENTS


def test_every_byte_is_a_boundary() -> None:
    for place in range(len(STREAM) + 1):
        assert _read([STREAM[:place], STREAM[place:]]) == EVENTS, place
        assert _read([STREAM[:place], b"", STREAM[place:]]) == EVENTS, place
    assert _read([STREAM[i : i + 1] for i in range(len(STREAM))]) == EVENTS


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_an_event_comes_with_its_empty_line_and_not_later(end: str) -> None:
    decoder = EventDecoder()
    assert list(decoder.feed(f"data: a{end}".encode())) == []
    assert list(decoder.feed(end[:1].encode())) == [Event("a")]
    assert list(decoder.feed(f"{end[1:]}data: b{end}{end}".encode())) == [Event("b")]


@given(LINES, ENDS, st.lists(st.integers(min_value=0), max_size=10))
def test_other_readers_agree(lines: list[str], ends: list[str], places: list[int]) -> None:
    """Line ends of one kind within a blank line: of mixed ones the readers have opinions of their own."""
    found = _read(list(_cut(_joined(lines, itertools.cycle(ends)), places)))
    decoder = HttpxDecoder()
    events = [event for line in [*lines, ""] if (event := decoder.decode(line)) is not None]
    # That reader makes events of empty ones too; the format does not.
    assert [(event.data, event.event) for event in found if event.data] == [
        (event.data, event.event) for event in events if event.data
    ]
    (end,) = ends[:1]
    whole = _joined(lines, itertools.repeat(end))
    theirs = [event for event in OpenAIDecoder().iter_bytes(iter([whole])) if event.data]
    assert [(event.data, event.event) for event in _read([whole]) if event.data] == [
        (event.data, event.event or "message") for event in theirs
    ]


def _joined(lines: list[str], ends: Iterator[str]) -> bytes:
    """With an empty line at the end. A CR is never followed by an LF that would be the end of the next line."""
    text = ""
    for line in [*lines, ""]:
        end = next(ends)
        text += f"{line}{chr(13) + chr(10) if not line and text.endswith(chr(13)) and end == chr(10) else end}"
    return text.encode()


@pytest.mark.parametrize("piece_bytes", [16 * 1024, 1024 * 1024 + 1, 128 * 1024 * 1024])
def test_an_event_of_64_mb(piece_bytes: int) -> None:
    text = "0123456789abcdef" * (4 * 1024 * 1024 - 1)
    whole = f"data: {text}\n\n".encode()
    decoder = EventDecoder()
    pieces = (whole[start : start + piece_bytes] for start in range(0, len(whole), piece_bytes))
    (event,) = [event for piece in pieces for event in decoder.feed(piece)]
    assert event.data == text


@pytest.mark.parametrize("shape", ["x", "data: x\n", ": comment\n", "data: x\r"])
@pytest.mark.parametrize("piece_bytes", [1, 7, 10_000])
def test_an_event_without_end_is_given_up(shape: str, piece_bytes: int) -> None:
    decoder = EventDecoder(max_event_bytes=1000)
    text = (shape * 30_000).encode()
    pieces = [text[start : start + piece_bytes] for start in range(0, 30_000, piece_bytes)]
    with pytest.raises(EventTooLarge, match=r"longer than max_event_bytes \(1000\)"):
        list(itertools.chain.from_iterable(map(decoder.feed, pieces)))


@pytest.mark.parametrize(("end", "last"), ["\n\r", "\r\n"])
def test_the_end_of_a_line_is_not_looked_for_again_with_each_line_before_it(end: str, last: str) -> None:
    """Of 300,000 lines; the test would not end."""
    line = "x" * 95
    lines = f"data:{line}{end}" * 300_000
    (event,) = EventDecoder().feed(f"{lines}{end}data{last}".encode())
    assert event.data == "\n".join([line] * 300_000)


def test_many_events_within_the_bound_are_no_large_one() -> None:
    decoder = EventDecoder(max_event_bytes=16)
    assert len(list(decoder.feed(b"data: 12345678\n\n" * 1000))) == 1000


def test_bytes_that_are_no_utf_8_are_replaced() -> None:
    assert _read([b"data: a\xffb\n\n"]) == [Event("a\ufffdb")]
