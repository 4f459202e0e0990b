"""Files of every format of the MIME tables, taken apart into their chunks, and changed at random where it hurts."""

from __future__ import annotations

import random
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Final

import numpy as np
from PIL import Image

from mindserve_engine.types import MediaKind
from tests.mindserve.chat.media.decoding import makers

_MP4_PARENTS: Final = frozenset({b"moov", b"trak", b"mdia", b"minf", b"stbl", b"dinf", b"edts", b"udta"})
_ASF_PARENTS: Final = frozenset(
    {bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c"), bytes.fromhex("b503bf5f2ea9cf118ee300c00c205365")}
)
_ASF_HEADS: Final = (30, 46)
"""What stands before the children of the two."""
_ODD: Final = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_MAX_CHANGES: Final = 3


@dataclass(frozen=True)
class Seed:
    """A whole file."""

    name: str
    kind: MediaKind
    mime: str
    data: bytes


@dataclass(frozen=True)
class Chunk:
    """A piece of a file that tells its own length. Those of one ``level`` follow one another."""

    start: int
    end: int
    length: slice
    """Where it tells it."""
    order: str
    """Of the length's bytes: big, little."""
    level: int


@cache
def seeds() -> tuple[Seed, ...]:
    """Small, and as different within a format as encoders make them."""
    image, video, audio = MediaKind.IMAGE, MediaKind.VIDEO, MediaKind.AUDIO
    still, frames, sound = makers.picture(60, 90), makers.clip(8), makers.tone(0.3)
    flat = Image.fromarray(still)
    two = {"save_all": True, "append_images": [flat]}
    jpeg, avi = "image/jpeg", "video/x-msvideo"
    return (
        Seed("jpeg", image, jpeg, makers.image_file(still, "JPEG")),
        Seed("jpeg, progressive", image, jpeg, makers.image_file(still, "JPEG", progressive=True)),
        Seed("jpeg, cmyk", image, jpeg, makers.image_file(flat.convert("CMYK"), "JPEG")),
        Seed("jpeg, turned", image, jpeg, makers.image_file(flat, "JPEG", exif=_turned())),
        Seed("png", image, "image/png", makers.image_file(still)),
        Seed("png, palette", image, "image/png", makers.image_file(flat.quantize(16), transparency=3)),
        Seed("png, 16 bits", image, "image/png", makers.image_file(Image.fromarray(still[..., 0].astype(np.uint16)))),
        Seed("png, animated", image, "image/png", makers.image_file(flat, **two)),
        Seed("mp4, h264", video, "video/mp4", makers.video_file(frames)),
        Seed("mp4, hevc", video, "video/mp4", _hevc(frames)),
        Seed("mp4, mpeg4, turned", video, "video/mp4", makers.video_file(frames, "mp4", "mpeg4", rotation=90)),
        Seed("avi, mpeg4", video, avi, makers.video_file(frames, "avi", "mpeg4")),
        Seed("avi, mjpeg", video, avi, makers.video_file(frames, "avi", "mjpeg")),
        Seed("wmv, wmv2", video, "video/x-ms-wmv", makers.video_file(frames, "asf", "wmv2")),
        Seed("wmv, wmv1", video, "video/x-ms-wmv", makers.video_file(frames, "asf", "wmv1")),
        Seed("mp3", audio, "audio/mpeg", makers.audio_file(sound, "mp3")),
        Seed("mp3, stereo", audio, "audio/mpeg", makers.audio_file(makers.tone(0.3, 44_100), "mp3", 44_100)),
        Seed("wav", audio, "audio/x-wav", makers.wav_file(sound)),
        Seed("wav, floats", audio, "audio/x-wav", _wav(sound.astype("<f4").tobytes(), coding=3, bits=32)),
        Seed("wav, mu-law", audio, "audio/x-wav", _wav(bytes(range(256)) * 8, coding=7, bits=8)),
        Seed("flac", audio, "audio/flac", makers.audio_file(sound, "flac")),
    )


def mutated(seed: Seed, rng: random.Random) -> bytes:
    """One to three changes. A PNG gets its checksums right again half of the time: wrong ones end every other look."""
    data = bytearray(seed.data)
    for _ in range(rng.randint(1, _MAX_CHANGES)):
        rng.choice(_CHANGES)(data, rng)
    if data.startswith(b"\x89PNG") and rng.random() < 0.5:
        _mend(data)
    return bytes(data)


def chunks(data: bytes | bytearray) -> list[Chunk]:
    """As far as they can be followed."""
    whole = bytes(data)
    for head, walk in _WALKS.items():
        if whole.startswith(head) or whole[4:8] == head:
            return list(walk(whole))
    return list(_mp3(whole))


def _hevc(frames: list[makers.Pixels]) -> bytes:
    return makers.video_file(frames, "mp4", "libx265", **{"x265-params": "log-level=none"})


def _turned() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def _wav(body: bytes, *, coding: int, bits: int) -> bytes:
    return makers.riff_wav(body, rate=16_000, channels=1, coding=coding, bits=bits)


def _flip_bits(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 4, 16, 64))):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _overwrite(data: bytearray, rng: random.Random) -> None:
    """A number in the first kilobytes, where the headers are, or anywhere."""
    size = rng.choice((1, 2, 4))
    if len(data) >= size:
        place = rng.randrange(min(rng.choice((64, 2048, len(data))), len(data) - size + 1))
        value = rng.choice((rng.choice(_ODD), rng.getrandbits(32))) % 256**size
        data[place : place + size] = value.to_bytes(size, rng.choice(("big", "little")))


def _truncate(data: bytearray, rng: random.Random) -> None:
    del data[rng.choice((rng.randrange(len(data) + 1), max(0, len(data) - rng.randint(1, 64)))) :]


def _cut_out(data: bytearray, rng: random.Random) -> None:
    place = rng.randrange(len(data) + 1)
    del data[place : place + rng.choice((1, 7, 64, 1024))]


def _double(data: bytearray, rng: random.Random) -> None:
    place = rng.randrange(len(data) + 1)
    data[place:place] = data[place : place + rng.choice((1, 40, 1024))] * rng.choice((1, 2, 30))


def _splice(data: bytearray, rng: random.Random) -> None:
    """The head of one file before the rest of another, now and then of another format."""
    other = rng.choice(seeds()).data
    at = rng.randrange(min(4096, len(data)) + 1)
    if rng.random() < 0.5:
        data[at:] = other[rng.randrange(len(other)) :]
    else:
        data[:at] = other[: rng.randrange(min(4096, len(other)))]


def _wrong_length(data: bytearray, rng: random.Random) -> None:
    found = chunks(data)
    if found:
        chunk = rng.choice(found)
        size = chunk.length.stop - chunk.length.start
        told = int.from_bytes(data[chunk.length], "big" if chunk.order == "big" else "little")
        near = told + rng.choice((-9, -8, -1, 1, 4, 8, 100))
        value = rng.choice((near, rng.choice(_ODD), len(data), rng.getrandbits(8 * size))) % 256**size
        data[chunk.length] = value.to_bytes(size, "big" if chunk.order == "big" else "little")


def _swap_chunks(data: bytearray, rng: random.Random) -> None:
    """Two that are neighbours change places, or one is left out, or comes twice, or far away from its place."""
    found = chunks(data)
    if not found:
        return
    one = rng.choice(found)
    piece = data[one.start : one.end]
    match rng.randrange(4):
        case 0:
            del data[one.start : one.end]
        case 1:
            data[one.end : one.end] = piece * rng.choice((1, 1, 20))
        case 2:
            other = rng.choice(found).start
            del data[one.start : one.end]
            data[other:other] = piece
        case _:
            follower = next((next_one for next_one in found if next_one.start == one.end), None)
            if follower is not None:
                data[one.start : follower.end] = data[follower.start : follower.end] + piece


_CHANGES: Final[tuple[Callable[[bytearray, random.Random], None], ...]] = (
    _flip_bits,
    _flip_bits,
    _overwrite,
    _truncate,
    _cut_out,
    _double,
    _splice,
    _wrong_length,
    _wrong_length,
    _swap_chunks,
)


def _mend(data: bytearray) -> None:
    for chunk in _png(bytes(data)):
        if chunk.end <= len(data):
            sum_at = chunk.end - 4
            data[sum_at : chunk.end] = struct.pack(">I", zlib.crc32(data[chunk.start + 4 : sum_at]))


def _png(data: bytes) -> Iterator[Chunk]:
    place = 8
    while place + 12 <= len(data):
        end = place + 12 + int.from_bytes(data[place : place + 4], "big")
        yield Chunk(place, min(end, len(data)), slice(place, place + 4), "big", 0)
        place = end


def _jpeg(data: bytes) -> Iterator[Chunk]:
    place = 2
    while place + 4 <= len(data) and data[place] == 0xFF:
        end = place + 2 + int.from_bytes(data[place + 2 : place + 4], "big")
        if data[place + 1] == 0xDA:  # its bytes follow the length that it tells
            found = re.compile(rb"\xff[^\x00\xd0-\xd7]").search(data, end)
            end = found.start() if found else len(data)
        yield Chunk(place, min(end, len(data)), slice(place + 2, place + 4), "big", 0)
        place = max(end, place + 2)


def _mp4(data: bytes, start: int = 0, end: int | None = None, level: int = 0) -> Iterator[Chunk]:
    stop = len(data) if end is None else end
    while start + 8 <= stop:
        size = int.from_bytes(data[start : start + 4], "big")
        if size < 8:
            return
        yield Chunk(start, min(start + size, stop), slice(start, start + 4), "big", level)
        if data[start + 4 : start + 8] in _MP4_PARENTS:
            yield from _mp4(data, start + 8, min(start + size, stop), level + 1)
        start += size


def _riff(data: bytes, start: int = 0, end: int | None = None, level: int = 0) -> Iterator[Chunk]:
    stop = len(data) if end is None else end
    while start + 8 <= stop:
        size = 8 + int.from_bytes(data[start + 4 : start + 8], "little")
        yield Chunk(start, min(start + size, stop), slice(start + 4, start + 8), "little", level)
        if data[start : start + 4] in (b"RIFF", b"LIST"):
            yield from _riff(data, start + 12, min(start + size, stop), level + 1)
        start += size + size % 2


def _asf(data: bytes, start: int = 0, end: int | None = None, level: int = 0) -> Iterator[Chunk]:
    stop = len(data) if end is None else end
    while start + 24 <= stop:
        size = int.from_bytes(data[start + 16 : start + 24], "little")
        if size < 24:
            return
        yield Chunk(start, min(start + size, stop), slice(start + 16, start + 20), "little", level)
        if data[start : start + 16] in _ASF_PARENTS:
            yield from _asf(data, start + _ASF_HEADS[min(level, 1)], min(start + size, stop), level + 1)
        start += size


def _flac(data: bytes) -> Iterator[Chunk]:
    place, is_last = 4, False
    while not is_last and place + 4 <= len(data):
        is_last = bool(data[place] & 0x80)
        end = place + 4 + int.from_bytes(data[place + 1 : place + 4], "big")
        yield Chunk(place, min(end, len(data)), slice(place + 1, place + 4), "big", 0)
        place = end
    yield from _frames(data, rb"\xff[\xf8\xf9]", place)


def _mp3(data: bytes) -> Iterator[Chunk]:
    return _frames(data, rb"\xff[\xf2-\xf3\xfa-\xfb]", 0)


def _frames(data: bytes, synchronisation: bytes, begin: int) -> Iterator[Chunk]:
    """From one synchronisation to the next; the byte behind it tells the length, by rates or by numbers of samples."""
    places = [found.start() for found in re.compile(synchronisation).finditer(data, begin)]
    for start, end in pairwise([*places, len(data)]):
        yield Chunk(start, end, slice(start + 2, start + 3), "big", 0)


_WALKS: Final[dict[bytes, Callable[[bytes], Iterator[Chunk]]]] = {
    b"\x89PNG": _png,
    b"\xff\xd8": _jpeg,
    b"ftyp": _mp4,
    b"RIFF": _riff,
    b"\x30\x26\xb2\x75": _asf,
    b"fLaC": _flac,
}
