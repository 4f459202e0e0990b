"""How deep and how large a JSON text is, without building anything: the guard in front of every decoder.

A decoder holds the interpreter lock for as long as it works, and makes an object of every value; what a body of a given
number of bytes costs is decided by the number of values in it.
"""

from __future__ import annotations

import enum
import re
from typing import Final

_COMMA: Final = ord(",")
_KEPT: Final = b'"[]{},'
_DROPPED: Final = bytes(set(range(256)) - set(_KEPT))
_STRING_OR_MARKS: Final = re.compile(rb'"[^"]*+"?|,+|[\[\]{}]')


class Excess(enum.Enum):
    """What a text has too much of."""

    DEPTH = enum.auto()
    VALUES = enum.auto()


def find_excess(body: bytes, *, max_depth: int, max_values: int | None = None) -> Excess | None:
    """The first excess of ``body``, read from its beginning; None when it keeps both limits.

    ``[[1]]`` is 2 deep. Values are counted as arrays, objects and commas: ``[1, {}]`` has three. The text need not be
    valid JSON: whatever a decoder would descend into is counted. Linear, no recursion; what runs long yields the lock.
    """
    num_openings = body.count(b"[") + body.count(b"{")
    counts_values = max_values is not None and num_openings + body.count(b",") > max_values
    if num_openings <= max_depth and not counts_values:
        return None
    depth = num_values = 0
    for match in _STRING_OR_MARKS.finditer(_marks(body, keep_commas=counts_values)):
        marks = match[0]
        first = marks[0]
        if first in b"[{":
            depth += 1
            num_values += 1
            if depth > max_depth:
                return Excess.DEPTH
        elif first in b"]}":
            depth -= 1
        elif first == _COMMA:
            num_values += len(marks)
        if counts_values and max_values is not None and num_values > max_values:
            return Excess.VALUES
    return None


def _marks(body: bytes, *, keep_commas: bool) -> bytes:
    """The brackets, quotes and commas of a JSON text, without the quotes that are part of a string's text."""
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = body.translate(None, _DROPPED if keep_commas else _DROPPED + b",")
    return marks.replace(b'""', b"")  # strings without marks in them; two that touch may be taken for one
