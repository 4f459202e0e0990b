"""The media parts of a request's messages, as ``chat.media`` takes them."""

from __future__ import annotations

from collections.abc import Iterator

from mindserve.api._generated.models import (
    AudioUrlPart,
    ChatCompletionRequest,
    ImageUrlPart,
    InputAudioPart,
    MediaUrl,
    TextPart,
    VideoUrlPart,
)
from mindserve.chat.media.refs import MediaPart


def media_types(request: ChatCompletionRequest) -> Iterator[tuple[int, int, str]]:
    """Message, part and type of each."""
    for i, j, part in _parts(request):
        yield i, j, type_of(part)


def take_media_parts(request: ChatCompletionRequest) -> list[MediaPart]:
    """In their order. Their texts are taken out of ``request``, which lives as long as its answer and must not hold
    tens of megabytes of Base64 until then."""
    return [_take(i, j, part) for i, j, part in _parts(request)]


_Part = ImageUrlPart | VideoUrlPart | AudioUrlPart | InputAudioPart


def type_of(part: _Part) -> str:
    return str(part.__struct_config__.tag)


def _parts(request: ChatCompletionRequest) -> Iterator[tuple[int, int, _Part]]:
    for i, message in enumerate(request.messages):
        for j, part in enumerate(message.content if isinstance(message.content, list) else ()):
            if not isinstance(part, TextPart):
                yield i, j, part


def _take(i: int, j: int, part: _Part) -> MediaPart:
    name = type_of(part)
    if isinstance(part, InputAudioPart):
        text, part.input_audio.data = part.input_audio.data, ""
        return MediaPart(i, j, name, f"{name}.data", text)
    place = getattr(part, name)
    if isinstance(place, MediaUrl):
        text, place.url = place.url, ""
        return MediaPart(i, j, name, f"{name}.url", text)
    setattr(part, name, "")
    return MediaPart(i, j, name, name, place)
