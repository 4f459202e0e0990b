"""Parts of messages: what is sent is what the contract takes, and what was given."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mindserve_client import audio, image, input_audio, text, video
from tests.media_service import File, files

UNKNOWN = bytes(range(256))
ENCODED = base64.b64encode(UNKNOWN).decode()
MAKERS: dict[str, Callable[..., Any]] = {"image": image, "video": video, "audio": audio}
FORMATS = {"image": "jpg, jpeg, png", "video": "mp4, avi, wmv", "audio": "mp3, wav, flac"}

each_kind = pytest.mark.parametrize("kind", MAKERS)
each_file = pytest.mark.parametrize("file", files(), ids=lambda file: str(file.name))


def part(kind: str, url: str) -> dict[str, Any]:
    return {"type": f"{kind}_url", f"{kind}_url": {"url": url}}


def test_text() -> None:
    assert text("a").model_dump() == {"type": "text", "text": "a"}


@each_kind
@pytest.mark.parametrize(
    "address", ["https://h/a.png", "data:image/png;base64,AAAA", "file:///a.png", "a.png", "/9j/4AAQ"]
)
def test_what_is_text_is_sent_as_it_is(kind: str, address: str) -> None:
    assert MAKERS[kind](address).model_dump() == part(kind, address)


@each_file
def test_a_file_has_the_type_that_its_bytes_tell(file: File, tmp_path: Path) -> None:
    """Whatever it is called."""
    make, expected = MAKERS[file.kind], part(file.kind, file.data_url)
    for name in (file.name, file.name.upper(), "nameless", "a.gif"):
        (tmp_path / name).write_bytes(file.data)
        assert make(tmp_path / name).model_dump() == expected
    assert make(file.data).model_dump() == expected
    for other in FORMATS[file.kind].split(", "):
        assert make(file.data, format=other).model_dump() == expected
        assert make(file.base64, format=other).model_dump() == expected


@each_file
def test_a_file_of_another_kind_is_refused_where_the_part_is_made(file: File, tmp_path: Path) -> None:
    (tmp_path / file.name).write_bytes(file.data)
    ending = file.name.removeprefix("a.")
    for kind, make in MAKERS.items():
        if kind != file.kind:
            for source in (file.data, tmp_path / file.name):
                with pytest.raises(
                    ValueError, match=f"source is {ending} by its first bytes, this part takes {FORMATS[kind]}"
                ):
                    make(source)
            with pytest.raises(ValueError, match=f"format must be one of {FORMATS[kind]}, got '{ending}'"):
                make(file.data, format=ending)


@each_kind
def test_where_bytes_tell_nothing_format_and_name_do(kind: str, tmp_path: Path) -> None:
    make = MAKERS[kind]
    mime = {"image": "image/png", "video": "video/x-ms-wmv", "audio": "audio/flac"}[kind]
    known = FORMATS[kind].rpartition(", ")[2]
    (tmp_path / f"a.{known}").write_bytes(UNKNOWN)
    (tmp_path / "a").write_bytes(UNKNOWN)
    expected = part(kind, f"data:{mime};base64,{ENCODED}")
    assert make(tmp_path / f"a.{known}").model_dump() == expected
    assert make(UNKNOWN, format=known.upper()).model_dump() == expected
    assert make(ENCODED, format=known).model_dump() == expected
    for source in (UNKNOWN, tmp_path / "a"):
        with pytest.raises(ValueError, match=f"source is none of {FORMATS[kind]} by its first bytes"):
            make(source)


@each_kind
def test_what_is_no_file_of_any_kind_is_told(kind: str, tmp_path: Path) -> None:
    make, known = MAKERS[kind], FORMATS[kind][:3]
    with pytest.raises(ValueError, match="got 'odd'"):
        make(UNKNOWN, format="odd")
    with pytest.raises(ValueError, match="holds no data"):
        make(b"", format=known)
    with pytest.raises(ValueError, match="must be Base64"):
        make("a.png", format=known)
    with pytest.raises(FileNotFoundError):
        make(tmp_path / "nowhere.png")
    with pytest.raises(IsADirectoryError):
        make(tmp_path)


@each_file
def test_input_audio(file: File, tmp_path: Path) -> None:
    (tmp_path / "recording").write_bytes(file.data)
    sources = (file.data, file.base64, tmp_path / "recording")
    if file.kind == "audio":
        expected = {"data": file.base64, "format": file.name.removeprefix("a.")}
        for source in sources:
            assert input_audio(source).model_dump() == {"type": "input_audio", "input_audio": expected}
            assert input_audio(source, format="mp3").model_dump()["input_audio"] == expected
    else:
        for source in sources:
            with pytest.raises(ValueError, match="this part takes mp3, wav, flac"):
                input_audio(source)


def test_input_audio_that_is_none() -> None:
    assert input_audio(UNKNOWN, format="wav").model_dump()["input_audio"] == {"data": ENCODED, "format": "wav"}
    with pytest.raises(ValueError, match="by its first bytes; if it is one, format must say which"):
        input_audio(UNKNOWN)
    with pytest.raises(ValueError, match="must be Base64"):
        input_audio("https://host/a.mp3")


@pytest.mark.parametrize("make", [text, image, video, audio])
def test_an_empty_one_is_refused_where_it_is_made(make: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="at least 1 character"):
        make("")
