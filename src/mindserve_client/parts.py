"""Parts of a message's content: text, and media by address or by their own bytes.

    messages=[{"role": "user", "content": [text("What is this?"), image(Path("cat.png"))]}]

What is given decides what is sent:

- a ``Path`` is read here, and travels inside the request;
- ``bytes`` travel inside the request;
- a ``str`` is sent as it is: an address, a ``data:`` URL, the Base64 of a JPEG, or the name of a file of the server's;
- a ``str`` with ``format`` is the Base64 of a file of that format.

What a file is its first bytes tell, then ``format``, then the name. A file of another kind raises ``ValueError``, which
names both; how large it may be and whether it can be read is the server's to say.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from mindserve_client._generated.models import (
    AudioUrlPart,
    ImageUrlPart,
    InputAudio,
    InputAudioPart,
    MediaUrl,
    TextPart,
    VideoUrlPart,
)

ContentPart: TypeAlias = TextPart | ImageUrlPart | VideoUrlPart | AudioUrlPart | InputAudioPart
Source: TypeAlias = str | bytes | Path
ImageFormat: TypeAlias = Literal["jpg", "jpeg", "png"]
VideoFormat: TypeAlias = Literal["mp4", "avi", "wmv"]
AudioFormat: TypeAlias = Literal["mp3", "wav", "flac"]

_MIME_TYPES: Final = {
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "png": "image/png",
    "mp4": "video/mp4",
    "avi": "video/x-msvideo",
    "wmv": "video/x-ms-wmv",
    "mp3": "audio/mpeg",
    "wav": "audio/x-wav",
    "flac": "audio/flac",
}
"""Tables 1 to 3 of the document."""
_BEGINNINGS: Final = {
    b"\xff\xd8\xff": "jpg",
    b"\x89PNG\r\n\x1a\n": "png",
    bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c"): "wmv",
    b"ID3": "mp3",
    b"fLaC": "flac",
}
_RIFF_FORMS: Final = {b"AVI ": "avi", b"WAVE": "wav"}
_MP3_SYNC: Final = 0xFFE0
"""The eleven bits with which a frame of an MP3 begins."""
_MP3_LAYER: Final = 0x0006
"""Bits that are both 0 in a frame of AAC, which begins alike."""


def text(value: str) -> ContentPart:
    """A part of plain text."""
    return TextPart(type="text", text=value)


def image(source: Source, *, format: ImageFormat | None = None) -> ContentPart:  # noqa: A002 - the field's own name
    """An image, JPEG or PNG. Raises ``ValueError`` for another file, ``OSError`` for a path that cannot be read."""
    return ImageUrlPart(type="image_url", image_url=MediaUrl(url=_url(source, format, get_args(ImageFormat))))


def video(source: Source, *, format: VideoFormat | None = None) -> ContentPart:  # noqa: A002
    """A video, MP4, AVI or WMV. Raises as ``image``."""
    return VideoUrlPart(type="video_url", video_url=MediaUrl(url=_url(source, format, get_args(VideoFormat))))


def audio(source: Source, *, format: AudioFormat | None = None) -> ContentPart:  # noqa: A002
    """A recording, MP3, WAV or FLAC. Raises as ``image``."""
    return AudioUrlPart(type="audio_url", audio_url=MediaUrl(url=_url(source, format, get_args(AudioFormat))))


def input_audio(source: Source, *, format: AudioFormat | None = None) -> ContentPart:  # noqa: A002
    """A recording in Base64 beside its format. A ``str`` is always Base64 here. Raises as ``image``."""
    formats = get_args(AudioFormat)
    encoded, name = _encoded(source, format, formats)
    known: AudioFormat = next(one for one in formats if one == name)
    return InputAudioPart(type="input_audio", input_audio=InputAudio(data=encoded, format=known))


def _url(source: Source, name: str | None, formats: tuple[str, ...]) -> str:
    if isinstance(source, str) and name is None:
        return source
    encoded, known = _encoded(source, name, formats)
    return f"data:{_MIME_TYPES[known]};base64,{encoded}"


def _encoded(source: Source, name: str | None, formats: tuple[str, ...]) -> tuple[str, str]:
    """Base64 of the medium, and which of ``formats`` it has. Raises ``ValueError``, ``OSError``."""
    if name is not None and name.lower() not in formats:
        raise ValueError(f"format must be one of {', '.join(formats)}, got {name!r}")
    if isinstance(source, str):
        return source, _format_of(_decoded(source), name, formats)
    if isinstance(source, Path):
        name = name or source.suffix.removeprefix(".")
        source = source.read_bytes()
    return base64.b64encode(source).decode("ascii"), _format_of(source, name, formats)


def _decoded(encoded: str) -> bytes:
    try:
        return binascii.a2b_base64(encoded, strict_mode=True)
    except ValueError as error:
        raise ValueError(f"source must be Base64 with padding, without spaces and line breaks: {error}") from None


def _format_of(data: bytes, name: str | None, formats: tuple[str, ...]) -> str:
    """By the first bytes; where they tell nothing, by ``name``. Raises ``ValueError``."""
    if not data:
        raise ValueError("source holds no data")
    told = _sniffed(data)
    found = told or (name or "").lower()
    if found in formats:
        return found
    if told is not None:
        raise ValueError(f"source is {told} by its first bytes, this part takes {', '.join(formats)}")
    raise ValueError(f"source is none of {', '.join(formats)} by its first bytes; if it is one, format must say which")


def _sniffed(data: bytes) -> str | None:
    """The format that the first bytes tell, if they do."""
    if data[:4] == b"RIFF":
        return _RIFF_FORMS.get(data[8:12])
    if data[4:8] == b"ftyp":
        return "mp4"
    word = int.from_bytes(data[:2], "big")
    if word & _MP3_SYNC == _MP3_SYNC and word & _MP3_LAYER:
        return "mp3"
    return next((name for beginning, name in _BEGINNINGS.items() if data.startswith(beginning)), None)
