"""Server-sent events, read without I/O and checked byte for byte (reading S5).

A frame on the wire is ``data: `` and one line, then an empty line; lines end with LF. What is merely legal in the
event-stream format (CR LF, comments, other fields, ``data:`` without the blank, several data lines) is read as well, so
that the rest of a stream can be judged, but each such frame carries its faults.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

DONE: Final = "[DONE]"


class FrameTooLong(Exception):
    """A frame goes on beyond the limit."""


@dataclass(frozen=True)
class Frame:
    """One event as it came."""

    raw: bytes
    data: str | None
    """The text of its data lines, joined; None: it has none, or it is no UTF-8."""
    faults: tuple[str, ...]
    """How its bytes differ from the contract's frame."""

    @property
    def is_done(self) -> bool:
        return self.data == DONE


class SseReader:
    """Takes bytes as they come and gives frames. ``max_frame_bytes`` bounds what is held back."""

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._held = bytearray()
        self._searched = 0

    def feed(self, piece: bytes) -> Iterator[Frame]:
        """The frames that ``piece`` completes. Raises ``FrameTooLong``."""
        self._held += piece
        while (end := self._end_of_frame()) is not None:
            raw = bytes(self._held[:end])
            del self._held[:end]
            self._searched = 0
            yield frame_of(raw)
        if len(self._held) > self._max_frame_bytes:
            raise FrameTooLong(f"a frame of more than {self._max_frame_bytes} bytes")

    @property
    def rest(self) -> bytes:
        """What came after the last complete frame."""
        return bytes(self._held)

    def _end_of_frame(self) -> int | None:
        """Where the first empty line ends. What was searched before is not searched again."""
        start = max(0, self._searched - 3)
        self._searched = len(self._held)
        ends = [
            (place, len(mark))
            for mark in (b"\n\n", b"\r\n\r\n", b"\r\r")
            if (place := self._held.find(mark, start)) >= 0
        ]
        return sum(min(ends)) if ends else None


def frame_of(raw: bytes) -> Frame:
    """A frame with its closing empty line, judged."""
    faults = []
    if b"\r" in raw:
        faults.append("has a carriage return")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return Frame(raw, None, (*faults, f"is not UTF-8 at byte {error.start}"))
    lines = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n\n").split("\n")
    data = [line.removeprefix("data:") for line in lines if line.startswith("data:")]
    others = [line for line in lines if not line.startswith("data:")]
    if others:
        faults.append(f"has the line {others[0][:40]!r}")
    if len(data) > 1:
        faults.append(f"has {len(data)} data lines")
    if any(not line.startswith(" ") for line in data):
        faults.append("lacks the blank after 'data:'")
    if not data:
        return Frame(raw, None, tuple(faults))
    return Frame(raw, "\n".join(line.removeprefix(" ") for line in data), tuple(faults))
