"""What a file is, by its first bytes. Labels (MIME types, extensions) lie, and decoders that guess open what they are
told to; so the format is decided here and forced upon them."""

from __future__ import annotations

import enum
from typing import Final

from mindserve.chat.media.decoding.rejected import MediaRejected
from mindserve_engine.types import MediaKind

HEAD_BYTES: Final = 16
"""So many of a file's first bytes tell what it is."""

_JPEG: Final = b"\xff\xd8\xff"
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_ASF: Final = bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c")
_STILL_BRANDS: Final = frozenset({b"avif", b"avis", b"heic", b"heim", b"heis", b"heix", b"mif1", b"msf1"})
"""ISO base media files that hold pictures."""


class Container(enum.Enum):
    """A file format, with its name for people."""

    JPEG = "JPEG"
    PNG = "PNG"
    MP4 = "MP4"
    AVI = "AVI"
    WMV = "WMV"
    MP3 = "MP3"
    WAV = "WAV"
    FLAC = "FLAC"


KINDS: Final = {
    Container.JPEG: MediaKind.IMAGE,
    Container.PNG: MediaKind.IMAGE,
    Container.MP4: MediaKind.VIDEO,
    Container.AVI: MediaKind.VIDEO,
    Container.WMV: MediaKind.VIDEO,
    Container.MP3: MediaKind.AUDIO,
    Container.WAV: MediaKind.AUDIO,
    Container.FLAC: MediaKind.AUDIO,
}
_NAMES: Final = {
    kind: " or ".join(container.value for container, its in KINDS.items() if its is kind) for kind in MediaKind
}


def container_of(head: bytes) -> Container | None:
    """``head``: the first ``HEAD_BYTES`` of the file, or all it has. None: none of the formats that are taken."""
    if head.startswith(_JPEG):
        return Container.JPEG
    if head.startswith(_PNG):
        return Container.PNG
    if head[4:8] == b"ftyp":
        return None if head[8:12] in _STILL_BRANDS else Container.MP4
    if head.startswith(_ASF):
        return Container.WMV
    if head.startswith(b"RIFF"):
        return {b"AVI ": Container.AVI, b"WAVE": Container.WAV}.get(head[8:12])
    if head.startswith(b"fLaC"):
        return Container.FLAC
    return Container.MP3 if head.startswith(b"ID3") or _is_mp3_frame(head) else None


def container_for(kind: MediaKind, head: bytes) -> Container:
    """The format of a file that is to be of this kind. Raises ``MediaRejected``."""
    if not head:
        raise MediaRejected(f"the {kind} is empty")
    container = container_of(head)
    if container is None:
        raise MediaRejected(f"the bytes are no {_NAMES[kind]} file")
    if KINDS[container] is not kind:
        raise MediaRejected(f"the bytes are {_of_kind(container)}, where {_NAMES[kind]} is expected")
    return container


def _of_kind(container: Container) -> str:
    kind = KINDS[container]
    return f"{container.value} {kind}" if kind is MediaKind.AUDIO else f"a {container.value} {kind}"


def _is_mp3_frame(head: bytes) -> bool:
    """The header of an MPEG frame of layer III: synchronisation, a version, a bit rate and a rate that exist."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE6 != 0xE2:
        return False
    version, bit_rate, rate = (head[1] >> 3) & 3, head[2] >> 4, (head[2] >> 2) & 3
    return version != 1 and bit_rate not in (0, 15) and rate != 3
