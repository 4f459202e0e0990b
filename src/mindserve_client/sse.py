"""Server-sent events, read without I/O: bytes in as they come, events out (the WHATWG's event-stream format).

Lines end with LF, CR or CR LF, wherever the pieces are cut. What is held back is bounded, and the work grows with the
number of bytes alone, however small the pieces are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mindserve_client.errors import EventTooLarge

DEFAULT_MAX_EVENT_BYTES: Final = 64 * 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `data`: its data lines, joined with LF; `event`: its type, "message" unless it names one."""

    data: str
    event: str = "message"
    id: str = ""
    retry_ms: int | None = None


class EventDecoder:
    """Takes bytes and gives events. An event may hold `max_event_bytes`, field names and line ends included."""

    def __init__(self, max_event_bytes: int = DEFAULT_MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._line = bytearray()
        self._ends_with_cr = False
        """The last piece did: an LF at the beginning of the next one belongs to it."""
        self._is_first_line = True
        self._num_bytes = 0
        """Of the event so far, complete lines only."""
        self._data: list[bytes] = []
        self._event = ""
        self._id = ""
        self._retry_ms: int | None = None

    def feed(self, piece: bytes) -> Iterator[Event]:
        """The events that `piece` completes. Raises `EventTooLarge`."""
        start = 1 if self._ends_with_cr and piece.startswith(b"\n") else 0
        if piece:
            self._ends_with_cr = piece.endswith(b"\r")
        for end, following in _line_ends(piece, start):
            line = self._completed(piece[start:end])
            start = following
            if line:
                self._num_bytes += len(line) + 1
                self._take(line)
            elif (event := self._dispatch()) is not None:
                yield event
        self._hold(piece[start:])

    def _completed(self, rest: bytes) -> bytes:
        self._hold(rest)
        line = bytes(self._line)
        self._line.clear()
        if self._is_first_line:
            line = line.removeprefix(_BOM)
            self._is_first_line = False
        return line

    def _hold(self, rest: bytes) -> None:
        if self._num_bytes + len(self._line) + len(rest) > self._max_event_bytes:
            raise EventTooLarge(self._max_event_bytes)
        self._line += rest

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit():
            self._retry_ms = int(value[:18])

    def _dispatch(self) -> Event | None:
        """The event that an empty line ends; one without data is none."""
        data, event = self._data, self._event
        retry_ms = self._retry_ms
        self._data, self._event, self._retry_ms, self._num_bytes = [], "", None, 0
        if not data:
            return None
        text = b"\n".join(data).decode("utf-8", "replace")
        return Event(text, event or "message", self._id, retry_ms)


def _line_ends(piece: bytes, start: int) -> Iterator[tuple[int, int]]:
    """Where each line ends, and where the next one begins. Two searches that only move on: an expression for both ends
    takes far longer over a line of megabytes."""
    cr, lf = piece.find(b"\r", start), piece.find(b"\n", start)
    while cr >= 0 or lf >= 0:
        if lf >= 0 and not 0 <= cr < lf:
            yield lf, lf + 1
            lf = piece.find(b"\n", lf + 1)
            continue
        following = cr + 1
        if lf == following:
            following += 1
            lf = piece.find(b"\n", following)
        yield cr, following
        cr = piece.find(b"\r", following)
