"""Parts of a message's content: text, and media by address or by their own bytes.

    messages=[{"role": "user", "content": [text("What is this?"), image(Path("cat.png"))]}]

A ``Path`` is read here and travels inside the request; a ``str`` is sent as it is (an address, a ``data:`` URL, or a
path on the server's side); ``bytes`` need their format.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
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
AudioFormat: TypeAlias = Literal["mp3", "wav", "flac"]

_IMAGES: Final = {"jpg": "image/jpeg", "jpeg": "image/jpeg", "png": "image/png"}
_VIDEOS: Final = {"mp4": "video/mp4", "avi": "video/x-msvideo", "wmv": "video/x-ms-wmv"}
_RECORDINGS: Final = {"mp3": "audio/mpeg", "wav": "audio/wav", "flac": "audio/flac"}
"""Format -> media type. Other ones travel in a ``data:`` URL of the caller's own."""


def text(value: str) -> ContentPart:
    """A part of plain text."""
    return TextPart(type="text", text=value)


def image(source: Source, *, format: str | None = None) -> ContentPart:  # noqa: A002 - the field's own name
    """An image; ``format`` ("png", "jpg") of bytes, and of files whose name does not tell."""
    return ImageUrlPart(type="image_url", image_url=MediaUrl(url=_url(source, format, _IMAGES)))


def video(source: Source, *, format: str | None = None) -> ContentPart:  # noqa: A002
    """A video; ``format`` as with ``image`` ("mp4", "avi", "wmv")."""
    return VideoUrlPart(type="video_url", video_url=MediaUrl(url=_url(source, format, _VIDEOS)))


def audio(source: Source, *, format: str | None = None) -> ContentPart:  # noqa: A002
    """A recording by its address; ``format`` as with ``image`` ("mp3", "wav", "flac")."""
    return AudioUrlPart(type="audio_url", audio_url=MediaUrl(url=_url(source, format, _RECORDINGS)))


def input_audio(source: bytes | Path, *, format: AudioFormat | None = None) -> ContentPart:  # noqa: A002
    """A recording inside the request, as Base64 with its format."""
    data = source.read_bytes() if isinstance(source, Path) else source
    name = format or (source.suffix.removeprefix(".").lower() if isinstance(source, Path) else None)
    known = next((known for known in get_args(AudioFormat) if known == name), None)
    if known is None:
        raise ValueError(f"format must be one of {', '.join(get_args(AudioFormat))}, got {name!r}")
    encoded = base64.b64encode(data).decode("ascii")
    return InputAudioPart(type="input_audio", input_audio=InputAudio(data=encoded, format=known))


def _url(source: Source, name: str | None, media_types: Mapping[str, str]) -> str:
    if isinstance(source, str):
        return source
    if isinstance(source, Path):
        name = name or source.suffix.removeprefix(".")
        source = source.read_bytes()
    media_type = media_types.get((name or "").lower())
    if media_type is None:
        raise ValueError(f"format must be one of {', '.join(media_types)}, got {name!r}")
    return f"data:{media_type};base64,{base64.b64encode(source).decode('ascii')}"
