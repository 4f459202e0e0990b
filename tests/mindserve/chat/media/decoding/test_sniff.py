from __future__ import annotations

import pytest

from mindserve.chat.media.decoding.rejected import MediaRejected
from mindserve.chat.media.decoding.sniff import HEAD_BYTES, KINDS, Container, container_for, container_of
from mindserve_engine.types import MediaKind
from tests.mindserve.chat.media.decoding import makers


def _files() -> dict[str, bytes]:
    sound, frames, picture = makers.tone(0.1), makers.clip(4), makers.picture(30, 40)
    return {
        "image/jpeg": makers.image_file(picture, "JPEG"),
        "image/png": makers.image_file(picture, "PNG"),
        "video/mp4": makers.video_file(frames, "mp4"),
        "video/x-msvideo": makers.video_file(frames, "avi", "mpeg4"),
        "video/x-ms-wmv": makers.video_file(frames, "asf", "wmv2"),
        "audio/mpeg": makers.audio_file(sound, "mp3"),
        "audio/x-wav": makers.wav_file(sound),
        "audio/flac": makers.audio_file(sound, "flac"),
    }


def test_every_format_of_the_document_is_known_by_its_first_bytes() -> None:
    found = {mime: container_of(data[:HEAD_BYTES]) for mime, data in _files().items()}
    assert found == {
        "image/jpeg": Container.JPEG,
        "image/png": Container.PNG,
        "video/mp4": Container.MP4,
        "video/x-msvideo": Container.AVI,
        "video/x-ms-wmv": Container.WMV,
        "audio/mpeg": Container.MP3,
        "audio/x-wav": Container.WAV,
        "audio/flac": Container.FLAC,
    }
    assert all(
        container is not None and str(KINDS[container]) == mime.split("/")[0] for mime, container in found.items()
    )


def test_an_mp3_is_known_with_and_without_a_tag() -> None:
    data = makers.audio_file(makers.tone(0.1), "mp3")
    assert data.startswith(b"ID3")
    bare = data[10 + int.from_bytes(data[6:10], "big") :]
    assert container_of(bare[:HEAD_BYTES]) is Container.MP3


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\xff",
        b"\xff\xd8",
        b"\x89PNG\r\n",
        b"GIF89a",
        b"RIFF\0\0\0\0WEBP",
        b"RIFF",
        b"BM",
        b"II*\0",
        b"\0\0\0\x20ftypheic",
        b"\0\0\0\x20ftypavif",
        b"OggS",
        b"FORM\0\0\0\0AIFF",
        b"\xff\xf1\x50\x80",  # AAC
        b"\xff\xfe\x3c\x00",  # text in UTF-16
        b"\xff\xfb\xf0\x00",  # a bit rate that does not exist
        b"\xff\xfb\x9c\x00",  # a sampling rate that does not exist
        b"\xff\xeb\x90\x00",  # a version that does not exist
        b"\x1aE\xdf\xa3",
        b"#EXTM3U\n",
        b"ffconcat version 1.0\n",
        b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\n",
        b"<html>",
        b"<svg xmlns=",
        b"%PDF-1.7",
    ],
)
def test_other_formats_are_none(head: bytes) -> None:
    assert container_of(head) is None


@pytest.mark.parametrize(
    ("kind", "head", "said"),
    [
        (MediaKind.IMAGE, b"", "the image is empty"),
        (MediaKind.IMAGE, b"GIF89a", "the bytes are no JPEG or PNG file"),
        (MediaKind.VIDEO, b"#EXTM3U", "the bytes are no MP4 or AVI or WMV file"),
        (MediaKind.AUDIO, b"OggS", "the bytes are no MP3 or WAV or FLAC file"),
        (MediaKind.VIDEO, b"\xff\xd8\xff\xe0", "the bytes are a JPEG image, where MP4 or AVI or WMV is expected"),
        (MediaKind.IMAGE, b"fLaC", "the bytes are FLAC audio, where JPEG or PNG is expected"),
    ],
)
def test_what_is_refused_says_what_is_expected(kind: MediaKind, head: bytes, said: str) -> None:
    with pytest.raises(MediaRejected, match=f"^{said}$"):
        container_for(kind, head)
