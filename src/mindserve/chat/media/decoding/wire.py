"""What the server and a process that decodes say to each other over a socket.

First the server sends ``Setup``, and the process answers with ``READY``. Then, for each item, one byte for its kind
comes with a descriptor of its file, and ``Decoded``, followed by the array's bytes, or ``Rejected`` goes back.
"""

from __future__ import annotations

from typing import Final

import msgspec

from mindserve.chat.media.decoding.decode_limits import DecodeLimits
from mindserve_engine.types import MediaKind, MediaModel

READY: Final = b"r"
KIND_CODES: Final = {MediaKind.IMAGE: b"i", MediaKind.VIDEO: b"v", MediaKind.AUDIO: b"a"}
LENGTH_BYTES: Final = 4
"""Before each message: its length, big-endian."""
MAX_MESSAGE_BYTES: Final = 64 * 1024


class Setup(msgspec.Struct, frozen=True):
    parent_pid: int
    model: MediaModel
    limits: DecodeLimits


class Decoded(msgspec.Struct, frozen=True, tag=True):
    shape: tuple[int, ...]
    """Of the array that follows (``MediaItem.shape``)."""
    seconds_per_frame: float = 0.0


class Rejected(msgspec.Struct, frozen=True, tag=True):
    reason: str
    """For the client."""
    cause: str = ""
    """For the log: the error that was met."""


Reply = Decoded | Rejected

_REPLIES: Final = msgspec.msgpack.Decoder(Reply)
_SETUPS: Final = msgspec.msgpack.Decoder(Setup)


def encode(message: Setup | Reply) -> bytes:
    block = msgspec.msgpack.encode(message)
    return len(block).to_bytes(LENGTH_BYTES, "big") + block


def decode_setup(block: bytes) -> Setup:
    return _SETUPS.decode(block)


def decode_reply(block: bytes) -> Reply:
    """Raises ``msgspec.DecodeError``."""
    return _REPLIES.decode(block)
