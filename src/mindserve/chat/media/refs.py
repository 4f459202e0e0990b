"""From the media parts of messages to where their bytes are. What can be refused without a fetch is refused here."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from mindserve.chat.media.budget import total_text
from mindserve.chat.media.faults import MediaFault
from mindserve.chat.media.inline import Inline
from mindserve.chat.media.limits import MAX_URL_CHARACTERS, MediaLimits, SizeLimit
from mindserve.chat.media.local import local_steps, too_large
from mindserve.chat.media.remote import Remote, is_remote, parse_remote
from mindserve.errors import RequestRefused, shown
from mindserve_engine.types import MediaKind

KINDS: Final = {
    "image_url": MediaKind.IMAGE,
    "video_url": MediaKind.VIDEO,
    "audio_url": MediaKind.AUDIO,
    "input_audio": MediaKind.AUDIO,
}
"""By the type of a part."""

MIME_TYPES: Final = {
    MediaKind.IMAGE: ("image/jpeg", "image/png", "image/jpg"),
    MediaKind.VIDEO: ("video/mp4", "video/x-msvideo", "video/x-ms-wmv"),
    MediaKind.AUDIO: ("audio/mpeg", "audio/x-wav", "audio/flac", "audio/wav", "audio/mp3"),
}
"""Tables 1 to 3 of the document, and names in common use for the same. Which of its kind a file really is, its own
bytes decide."""

EXTENSIONS: Final = {
    MediaKind.IMAGE: (".jpg", ".jpeg", ".png"),
    MediaKind.VIDEO: (".mp4", ".avi", ".wmv"),
    MediaKind.AUDIO: (".mp3", ".wav", ".flac"),
}

_FILE_SCHEME: Final = "file://"
_DATA_SCHEME: Final = "data:"
_DATA_HEAD: Final = re.compile(r"data:(?P<mime>[^,;]*)(?:;[^,;]*)*?(?P<base64>;base64)?,", re.IGNORECASE)
_MAX_HEAD_CHARACTERS: Final = 256
_JPEG_BASE64: Final = "/9j/"
"""How every JPEG (FF D8 FF) begins in Base64."""


class MediaPart(NamedTuple):
    """A part of a message as the client wrote it."""

    i: int
    """Index of the message."""
    j: int
    """Index of the part in it."""
    type: str
    """A key of ``KINDS``."""
    key: str
    """Where ``text`` stands in the part: ``image_url``, ``image_url.url``, ``input_audio.data``."""
    text: str

    @property
    def field(self) -> str:
        return f"messages[{self.i}].content[{self.j}].{self.key}"


@dataclass(frozen=True, slots=True)
class Local:
    """A file of the media folder."""

    steps: tuple[str, ...]


Source: TypeAlias = Remote | Local | Inline


@dataclass(frozen=True, slots=True)
class MediaRef:
    """One item: what it is, where its bytes are, and how many they may be."""

    kind: MediaKind
    source: Source
    limit: SizeLimit
    i: int
    j: int
    field: str
    """Its place in the request, for error texts."""


def media_refs(parts: Iterable[MediaPart], limits: MediaLimits) -> list[MediaRef]:
    """In the order of ``parts``. Raises ``RequestRefused`` naming the first one that cannot be taken."""
    refs: list[MediaRef] = []
    num_bytes = 0
    for part in parts:
        kind, limit = KINDS[part.type], limits.sizes[part.type]
        try:
            source = _source(part, kind, limits)
            if isinstance(source, Inline):
                num_bytes += _inline_size(source, limit)
            if num_bytes > limits.total.max_bytes:
                raise MediaFault(total_text(num_bytes, limits.total))
        except MediaFault as fault:
            raise refused(part.field, fault) from None
        refs.append(MediaRef(kind, source, limit, part.i, part.j, part.field))
    return refs


def refused(field: str, fault: MediaFault) -> RequestRefused:
    return RequestRefused(f"{field} {fault.text}", field=field)


def _inline_size(inline: Inline, limit: SizeLimit) -> int:
    num_bytes = inline.num_bytes
    if num_bytes > limit.max_bytes:
        raise too_large(num_bytes, limit)
    return num_bytes


def _source(part: MediaPart, kind: MediaKind, limits: MediaLimits) -> Source:
    text = part.text
    if part.type == "input_audio":
        return Inline(text)
    if text[: len(_DATA_SCHEME)].lower() == _DATA_SCHEME:
        return _data_url(text, kind)
    if kind is MediaKind.IMAGE and text.startswith(_JPEG_BASE64) and "." not in text:
        return Inline(text)
    if len(text) > MAX_URL_CHARACTERS:
        raise MediaFault(
            f"holds {len(text)} characters; at most {MAX_URL_CHARACTERS} are allowed in a URL or a name of a file"
        )
    return parse_remote(text, limits) if is_remote(text) else _local(text, kind, limits.root)


def _local(text: str, kind: MediaKind, root: str) -> Local:
    is_url = text[: len(_FILE_SCHEME)].lower() == _FILE_SCHEME
    # Cut off as text: to a parser of URLs, demo.png in file://demo.png is a host.
    name = text[len(_FILE_SCHEME) :] if is_url else text
    extensions = EXTENSIONS[kind]
    if os.path.splitext(name)[1].lower() not in extensions or (not is_url and "://" in name):  # noqa: PTH122 - no path yet
        jpeg = f", or a JPEG in Base64 (which begins with {_JPEG_BASE64})" if kind is MediaKind.IMAGE else ""
        raise MediaFault(
            f"must be an http(s) URL, a data: URL, or the name of a file in {_either(extensions)}{jpeg},"
            f" got {shown(text)}"
        )
    return Local(local_steps(name, root))


def _data_url(text: str, kind: MediaKind) -> Inline:
    head = _DATA_HEAD.match(text[:_MAX_HEAD_CHARACTERS])
    if head is None or head["base64"] is None:
        raise MediaFault(f"must be a data: URL in Base64 (data:{MIME_TYPES[kind][0]};base64,...), got {shown(text)}")
    mime = head["mime"].strip().lower()
    if mime not in MIME_TYPES[kind]:
        raise MediaFault(f"must have one of the MIME types {_either(MIME_TYPES[kind])}, got {shown(mime)}")
    return Inline(text, head.end())


def _either(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}"
