"""Parts of messages: what is sent is what the contract takes, and what was given."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mindserve_client import audio, image, input_audio, text, video

DATA = bytes(range(256))
ENCODED = base64.b64encode(DATA).decode()


def test_text() -> None:
    assert text("a").model_dump() == {"type": "text", "text": "a"}


@pytest.mark.parametrize(
    ("make", "kind", "formats"),
    [
        (image, "image_url", {"png": "image/png", "jpg": "image/jpeg", "JPEG": "image/jpeg"}),
        (video, "video_url", {"mp4": "video/mp4", "avi": "video/x-msvideo", "wmv": "video/x-ms-wmv"}),
        (audio, "audio_url", {"mp3": "audio/mpeg", "wav": "audio/wav", "flac": "audio/flac"}),
    ],
)
def test_media(make: Callable[..., Any], kind: str, formats: dict[str, str], tmp_path: Path) -> None:
    for address in ("https://h/a.png", "data:image/png;base64,AAAA", "file:///a.png", "a.png"):
        assert make(address).model_dump() == {"type": kind, kind: {"url": address}}
    for name, media_type in formats.items():
        file = tmp_path / f"a.{name}"
        file.write_bytes(DATA)
        url = f"data:{media_type};base64,{ENCODED}"
        expected = {"type": kind, kind: {"url": url}}
        assert make(file).model_dump() == expected
        assert make(DATA, format=name).model_dump() == expected
    with pytest.raises(ValueError, match=r"format must be one of .*, got None"):
        make(DATA)
    with pytest.raises(ValueError, match="got 'odd'"):
        make(DATA, format="odd")
    with pytest.raises(FileNotFoundError):
        make(tmp_path / "nowhere.png")


def test_input_audio(tmp_path: Path) -> None:
    file = tmp_path / "a.WAV"
    file.write_bytes(DATA)
    expected = {"type": "input_audio", "input_audio": {"data": ENCODED, "format": "wav"}}
    assert input_audio(file).model_dump() == expected
    assert input_audio(DATA, format="wav").model_dump() == expected
    for call in (lambda: input_audio(DATA), lambda: input_audio(tmp_path / "a.ogg", format=None)):
        with pytest.raises((ValueError, FileNotFoundError)):
            call()


@pytest.mark.parametrize("make", [text, image, video, audio])
def test_an_empty_one_is_refused_where_it_is_made(make: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="at least 1 character"):
        make("")
