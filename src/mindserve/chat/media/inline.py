"""Base64 inside a request: its size by arithmetic, its bytes piece by piece."""

from __future__ import annotations

import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mindserve.chat.media.faults import Abandoned, MediaFault

_GROUP: Final = 4
"""Characters that stand for three bytes."""
_PIECE_CHARACTERS: Final = _GROUP * 256 * 1024
"""A piece holds the interpreter lock for about a millisecond."""
_NOT_BASE64: Final = "is not Base64 (RFC 4648, with padding, without spaces and line breaks)"


@dataclass(frozen=True, slots=True)
class Inline:
    """Base64 that begins at ``start`` in ``text``: what follows the head of a data: URL is not copied."""

    text: str
    start: int = 0

    @property
    def num_bytes(self) -> int:
        """Of what it stands for. Raises ``MediaFault`` when the length alone shows that it is no Base64, or empty."""
        length = len(self.text) - self.start
        if length == 0:
            raise MediaFault("holds no data")
        if length % _GROUP:
            raise MediaFault(f"{_NOT_BASE64}: its length, {length}, is no multiple of {_GROUP}")
        padding = 2 if self.text.endswith("==") else int(self.text.endswith("="))
        return length // _GROUP * 3 - padding


def decode_inline(inline: Inline, is_abandoned: Callable[[], bool]) -> bytearray:
    """The bytes. Raises ``MediaFault``, or ``Abandoned`` between two pieces."""
    data = bytearray(inline.num_bytes)
    end = 0
    for begin in range(inline.start, len(inline.text), _PIECE_CHARACTERS):
        if is_abandoned():
            raise Abandoned
        piece = _decode(inline.text[begin : begin + _PIECE_CHARACTERS])
        data[end : end + len(piece)] = piece
        end += len(piece)
    if end != inline.num_bytes:  # padding stood in the middle
        raise MediaFault(_NOT_BASE64)
    return data


def _decode(piece: str) -> bytes:
    try:
        return binascii.a2b_base64(piece, strict_mode=True)
    except ValueError as error:
        raise MediaFault(_NOT_BASE64, str(error)) from None
