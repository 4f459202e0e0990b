"""Files that are broken, lie, or ask for more than they are worth, each with the right answer."""

from __future__ import annotations

import functools
import io
import struct
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import av
import numpy as np
from PIL import Image

from mindserve_engine.types import MediaKind
from tests.mindserve.chat.media.decoding.makers import (
    audio_file,
    boxes,
    clip,
    deflated_zeros,
    image_file,
    picture,
    png,
    png_chunk,
    repeated,
    riff_wav,
    tone,
    video_file,
    wav_file,
    with_external_data,
    with_scans,
)

IMAGE, VIDEO, AUDIO = MediaKind.IMAGE, MediaKind.VIDEO, MediaKind.AUDIO


@dataclass(frozen=True)
class Case:
    name: str
    kind: MediaKind
    make: Callable[[], bytes]
    answer: str | tuple[int, ...]
    """What the refusal says, or the shape of what is decoded all the same."""


def _half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _jpeg(**options: Any) -> bytes:
    return image_file(picture(120, 160), "JPEG", **options)


def _png_pixels(width: int, height: int) -> bytes:
    return png(width, height, deflated_zeros((width + 1) * height))


def _bits(side: int) -> bytes:
    return png(side, side, deflated_zeros((side // 8 + 1) * side), depth=1)


def _text_bomb(name: bytes, head: bytes) -> bytes:
    chunk = png_chunk(name, head + deflated_zeros(200_000_000))
    return png(56, 56, zlib.compress(bytes(57 * 56)), chunks=chunk)


def _with_wrong_sum(data: bytes) -> bytes:
    place = data.index(b"IDAT") + 8
    return data[:place] + bytes([data[place] ^ 255]) + data[place + 1 :]


def _jpeg_of_size(height: int, width: int) -> bytes:
    data = bytearray(_jpeg())
    place = data.index(b"\xff\xc0") + 5
    data[place : place + 4] = struct.pack(">HH", height, width)
    return bytes(data)


def _moving(sizes: Iterable[int]) -> bytes:
    """An AVI of JPEG pictures, square, whose sides are not those of its header (64)."""
    made = io.BytesIO()
    with av.open(made, "w", format="avi") as container:
        stream: Any = container.add_stream("mjpeg", rate=10)
        stream.height = stream.width = 64
        stream.pix_fmt = "yuvj420p"
        for place, side in enumerate(sizes):
            packet = av.Packet(image_file(np.zeros((side, side, 3), np.uint8), "JPEG"))
            packet.stream, packet.time_base = stream, Fraction(1, 10)
            packet.pts = packet.dts = place
            packet.is_keyframe = True
            container.mux(packet)
    return made.getvalue()


def _cover(with_picture: bool) -> bytes:
    """Sound in an MP4, with the picture of a record's cover if asked for."""
    sound = audio_file(tone(0.5), "mp4")
    if not with_picture:
        return sound
    made = io.BytesIO()
    with av.open(io.BytesIO(sound)) as source, av.open(made, "w", format="mp4") as container:
        stream = container.add_stream_from_template(source.streams.audio[0])
        cover: Any = container.add_stream("mjpeg", rate=1)
        cover.height, cover.width, cover.pix_fmt = 120, 160, "yuvj420p"
        cover.disposition = av.stream.Disposition.attached_pic
        for packet in source.demux(source.streams.audio[0]):
            if packet.size:
                packet.stream = stream
                container.mux(packet)
        container.mux(cover.encode(av.VideoFrame.from_ndarray(picture(120, 160), format="rgb24")))
        container.mux(cover.encode())
    return made.getvalue()


def _tall() -> bytes:
    return video_file([np.zeros((1640, 8, 3), np.uint8)] * 4, "avi", "mjpeg")


def _huge() -> bytes:
    return video_file([np.zeros((8192, 8192, 3), np.uint8)], preset="ultrafast")


def _without_moov() -> bytes:
    data = video_file(clip(10))
    return data[: boxes(data, [b"moov"])[0][0]]


def _text_in(container: bytes, text: bytes) -> bytes:
    return container + text


def _flac_of_rate(rate: int) -> bytes:
    data = audio_file(tone(0.5), "flac")
    fields = int.from_bytes(data[18:26], "big")
    fields = fields & ((1 << 44) - 1) | rate << 44
    return data[:18] + fields.to_bytes(8, "big") + data[26:]


def _flac_of_length(num_samples: int) -> bytes:
    data = audio_file(tone(0.5), "flac")
    fields = int.from_bytes(data[18:26], "big") >> 36 << 36 | num_samples
    return data[:18] + fields.to_bytes(8, "big") + data[26:]


def _floats(value: float) -> bytes:
    samples = np.zeros(4800, "<f4")
    samples[100] = value
    return riff_wav(samples.tobytes(), rate=16_000, channels=1, coding=3, bits=32)


def _pcm(rate: int, channels: int, num_samples: int = 8000) -> bytes:
    return riff_wav(bytes(2 * channels * num_samples), rate=rate, channels=channels, coding=1, bits=16)


def _silence(seconds: int) -> bytes:
    return audio_file(np.zeros((seconds * 8000, 1)), "flac", 8000)


NO_IMAGE = "the bytes are no JPEG or PNG file"
NO_VIDEO = "the bytes are no MP4 or AVI or WMV file"
NO_AUDIO = "the bytes are no MP3 or WAV or FLAC file"
CONCAT = b"ffconcat version 1.0\nfile '/etc/passwd'\n"
SDP = b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=video 5004 RTP/AVP 96\r\n"
HLS = b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n"
FTYP = struct.pack(">I4s4sI4s", 20, b"ftyp", b"isom", 512, b"isom")

_CASES: list[tuple[str, MediaKind, Callable[[], bytes], str | tuple[int, ...]]] = [
    ("png 30000x30000", IMAGE, lambda: _bits(30_000), "30000 x 30000 pixels, more than the limit of 67108864"),
    ("png 2^31-1", IMAGE, lambda: png(2**31 - 1, 2**31 - 1, b""), "pixels, more than the limit of 67108864"),
    ("png 88 megapixels", IMAGE, lambda: _png_pixels(9400, 9400), "9400 x 9400 pixels, more than the limit"),
    ("png 64 megapixels", IMAGE, lambda: _png_pixels(8192, 8192), (980, 980, 3)),
    ("png without width", IMAGE, lambda: png(0, 56, b""), "no valid PNG image"),
    ("png zTXt of 200 MB", IMAGE, lambda: _text_bomb(b"zTXt", b"a\0\0"), "no valid PNG image"),
    ("png iTXt of 200 MB", IMAGE, lambda: _text_bomb(b"iTXt", b"a\0\1\0\0\0"), "no valid PNG image"),
    ("png iCCP of 200 MB", IMAGE, lambda: _text_bomb(b"iCCP", b"a\0\0"), "no valid PNG image"),
    ("png with 200 MB behind its pixels", IMAGE, lambda: png(56, 56, deflated_zeros(200_000_000)), (56, 56, 3)),
    ("png of too few rows", IMAGE, lambda: png(56, 56, zlib.compress(bytes(57 * 20))), (56, 56, 3)),
    ("png with a wrong sum", IMAGE, lambda: _with_wrong_sum(image_file(picture(56, 56))), "no valid PNG image"),
    ("png without pixels", IMAGE, lambda: png(56, 56, b"")[:33], "no valid PNG image"),
    ("png signature alone", IMAGE, lambda: b"\x89PNG\r\n\x1a\n", "no valid PNG image"),
    ("half a png", IMAGE, lambda: _half(image_file(picture(120, 160))), "no valid PNG image"),
    ("half a jpeg", IMAGE, lambda: _half(_jpeg()), "no valid JPEG image"),
    ("jpeg marker alone", IMAGE, lambda: b"\xff\xd8\xff", "no valid JPEG image"),
    ("jpeg that claims 65500x65500", IMAGE, lambda: _jpeg_of_size(65_500, 65_500), "more than the limit of 67108864"),
    ("jpeg that claims more rows", IMAGE, lambda: _jpeg_of_size(240, 160), (252, 168, 3)),
    ("jpeg of 5000 scans", IMAGE, lambda: with_scans(_jpeg(progressive=True), 5000), "more scans than the limit"),
    ("nothing", IMAGE, lambda: b"", "the image is empty"),
    ("gif", IMAGE, lambda: image_file(picture(56, 56), "GIF"), NO_IMAGE),
    ("webp", IMAGE, lambda: image_file(picture(56, 56), "WEBP"), NO_IMAGE),
    ("bmp", IMAGE, lambda: image_file(picture(56, 56), "BMP"), NO_IMAGE),
    ("tiff", IMAGE, lambda: image_file(picture(56, 56), "TIFF"), NO_IMAGE),
    ("html", IMAGE, lambda: b"<!doctype html><p>not found", NO_IMAGE),
    ("svg", IMAGE, lambda: b"<svg xmlns='http://www.w3.org/2000/svg'/>", NO_IMAGE),
    ("postscript", IMAGE, lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", NO_IMAGE),
    ("image 1x300", IMAGE, lambda: image_file(picture(300, 1)), "one side is more than 200 times the other"),
    ("image 300x1", IMAGE, lambda: image_file(picture(1, 300)), "one side is more than 200 times the other"),
    ("image that is a video", IMAGE, lambda: video_file(clip(4)), "a MP4 video, where JPEG or PNG is expected"),
    ("image that is sound", IMAGE, lambda: wav_file(tone(0.1)), "WAV audio, where JPEG or PNG is expected"),
    ("ffconcat", VIDEO, lambda: CONCAT, NO_VIDEO),
    ("sdp", VIDEO, lambda: SDP, NO_VIDEO),
    ("hls", VIDEO, lambda: HLS, NO_VIDEO),
    ("hls behind an mp4 head", VIDEO, lambda: _text_in(FTYP, HLS), "no valid MP4 video"),
    ("ffconcat behind an avi head", VIDEO, lambda: _text_in(b"RIFF\xff\0\0\0AVI ", CONCAT), "has no video stream of"),
    ("video that is a png", VIDEO, lambda: image_file(picture(56, 56)), "a PNG image, where MP4 or AVI or WMV is"),
    ("heic", VIDEO, lambda: FTYP.replace(b"isom", b"heic"), NO_VIDEO),
    ("matroska", VIDEO, lambda: b"\x1aE\xdf\xa3" + bytes(100), NO_VIDEO),
    ("mp4 of outside frames", VIDEO, lambda: with_external_data(video_file(clip(9)), b"/etc/passwd"), "has no frames"),
    ("mp4 without moov", VIDEO, _without_moov, "no valid MP4 video"),
    ("half an mp4", VIDEO, lambda: _half(video_file(clip(10))), "no valid MP4 video"),
    ("avi head alone", VIDEO, lambda: video_file(clip(4), "avi", "mpeg4")[:64], "no valid AVI video"),
    ("wmv head alone", VIDEO, lambda: video_file(clip(4), "asf", "wmv2")[:64], "no valid WMV video"),
    ("h264 8192x8192", VIDEO, _huge, "8192 x 8192 pixels, more than the limit of 9437184"),
    ("frames that grow", VIDEO, lambda: _moving([64, 64, 96, 64]), "change their size"),
    ("frames that grow beyond the limit", VIDEO, lambda: _moving([64, 64, 5000, 64]), "no valid AVI video"),
    ("one keyframe", VIDEO, lambda: repeated(1000, 2160, 3840), "986 frames of the video would have to be decoded"),
    ("many frames", VIDEO, lambda: repeated(200_001, 16, 16), "more than 200000 frames, the limit"),
    ("an hour and more", VIDEO, lambda: repeated(10, 48, 64, ticks=25 * 400), "4400 s long, the limit is 3600 s"),
    ("mp4 of sound", VIDEO, lambda: _cover(with_picture=False), "no video stream of a codec that is taken"),
    ("mp4 of sound with a cover", VIDEO, lambda: _cover(with_picture=True), "no video stream of a codec that is taken"),
    ("video of an odd codec", VIDEO, lambda: video_file(clip(4), "avi", "ffv1"), "no video stream of a codec that is"),
    ("video 8x1640", VIDEO, _tall, "one side is more than 200 times the other"),
    ("sound that is a png", AUDIO, lambda: image_file(picture(56, 56)), "a PNG image, where MP3 or WAV or FLAC is"),
    ("sdp as sound", AUDIO, lambda: SDP, NO_AUDIO),
    ("ogg", AUDIO, lambda: audio_file(tone(0.5, 48_000), "ogg", 48_000), NO_AUDIO),
    ("aac", AUDIO, lambda: audio_file(tone(0.5), "adts"), NO_AUDIO),
    ("wav of float nan", AUDIO, lambda: _floats(np.nan), "samples that are no finite numbers"),
    ("wav of float infinity", AUDIO, lambda: _floats(np.inf), "samples that are no finite numbers"),
    ("29 ms", AUDIO, lambda: wav_file(tone(0.029)), "29 ms long, the least is 30 ms"),
    ("31 s of wav", AUDIO, lambda: wav_file(tone(31)), "longer than 30 s, the limit"),
    ("31 s of mp3", AUDIO, lambda: audio_file(tone(31), "mp3"), "longer than 30 s, the limit"),
    ("ten minutes of silence", AUDIO, lambda: _silence(600), "longer than 30 s, the limit"),
    ("wav of 1 Hz", AUDIO, lambda: _pcm(1, 1), "1 samples per second, not 8000 to 192000"),
    ("wav of 655 kHz", AUDIO, lambda: _pcm(655_350, 1), "655350 samples per second, not 8000 to 192000"),
    ("flac that claims 655 kHz", AUDIO, lambda: _flac_of_rate(655_350), (8000,)),
    ("wav of 200 channels", AUDIO, lambda: _pcm(16_000, 200), "200 channels, not 1 to 8"),
    ("wav of 9 channels", AUDIO, lambda: _pcm(16_000, 9), "9 channels, not 1 to 8"),
    ("wav of no channels", AUDIO, lambda: _pcm(16_000, 0), "no valid WAV audio"),
    ("wav of adpcm", AUDIO, lambda: riff_wav(bytes(9000), rate=16_000, channels=1, coding=17, bits=4), "no sound of"),
    ("wav that claims 4 GB", AUDIO, lambda: riff_wav(bytes(16_000), rate=16_000, channels=1, coding=1, bits=16,
                                                     data_length=2**32 - 1), (8000,)),
    ("wav without samples", AUDIO, lambda: _pcm(16_000, 1, 0), "the audio is 0 ms long"),
    ("half a wav", AUDIO, lambda: _half(wav_file(tone(1.0))), (7989,)),
    ("half a flac", AUDIO, lambda: _half(audio_file(tone(1.0), "flac")), "no valid FLAC audio"),
    ("flac that claims 50 days", AUDIO, lambda: _flac_of_length(2**36 - 1), "longer than 30 s, the limit"),
    ("flac of unknown length", AUDIO, lambda: _flac_of_length(0), (8000,)),
    ("mp3 tag alone", AUDIO, lambda: b"ID3\x04\0\0\0\0\0\0", "no valid MP3 audio"),
    ("mp3 tag of 256 MB", AUDIO, lambda: b"ID3\x04\0\0\x7f\x7f\x7f\x7f" + bytes(100), "no valid MP3 audio"),
    ("mp3 of zeros", AUDIO, lambda: b"ID3\x04\0\0\0\0\0\0" + bytes(100_000), "no valid MP3 audio"),
]  # fmt: skip

CASES = [Case(name, kind, functools.cache(make), answer) for name, kind, make, answer in _CASES]


def ordinary() -> list[tuple[MediaKind, bytes, tuple[int, ...]]]:
    """A small file of every format of the document, with the shape of what it holds."""
    still, frames, sound = picture(120, 160), clip(10), tone(0.5)
    return [
        (IMAGE, image_file(still, "JPEG"), (112, 168, 3)),
        (IMAGE, image_file(still, "PNG"), (112, 168, 3)),
        (
            IMAGE,
            image_file(Image.fromarray(still), save_all=True, append_images=[Image.fromarray(still)]),
            (112, 168, 3),
        ),
        (VIDEO, video_file(frames, "mp4"), (4, 56, 56, 3)),
        (VIDEO, video_file(frames, "avi", "mpeg4"), (4, 56, 56, 3)),
        (VIDEO, video_file(frames, "asf", "wmv2"), (4, 56, 56, 3)),
        (AUDIO, wav_file(sound), (8000,)),
        (AUDIO, audio_file(sound, "flac"), (8000,)),
        (AUDIO, audio_file(sound, "mp3"), (8000,)),
    ]
