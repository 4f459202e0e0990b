"""Media files of every kind that the document names, made in memory, and the model that sees them."""

from __future__ import annotations

import io
import struct
import wave
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from PIL import Image

from mindserve_engine.types import MediaModel

Pixels = npt.NDArray[np.uint8]
Samples = npt.NDArray[np.float64]

MODEL = MediaModel(
    image_token_id=1,
    video_token_id=2,
    audio_token_id=3,
    patch_size=14,
    merge_size=2,
    frames_per_patch=2,
    min_pixels=56 * 56,
    max_pixels=14 * 14 * 4 * 1280,
    sample_rate=16_000,
    samples_per_frame=160,
    max_samples=480_000,
)
"""The figures of Qwen2-VL's and Qwen2-Audio's processors."""


def picture(height: int, width: int, seed: int = 0) -> Pixels:
    """Smooth colours with some noise, so that a resize shows."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[0:height, 0:width]
    waves = [128 + 100 * np.sin(rows / (5 + k) + columns / (9 - k) + seed) for k in range(3)]
    return (np.stack(waves, -1) + rng.normal(0, 5, (height, width, 3))).clip(0, 255).astype(np.uint8)


def image_file(image: Pixels | Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    made = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(made, kind, **options)
    return made.getvalue()


def png(width: int, height: int, idat: bytes, *, depth: int = 8, colour: int = 0, chunks: bytes = b"") -> bytes:
    """A PNG by hand; ``chunks`` stand before the pixels."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    parts = [
        b"\x89PNG\r\n\x1a\n",
        png_chunk(b"IHDR", header),
        chunks,
        png_chunk(b"IDAT", idat),
        png_chunk(b"IEND", b""),
    ]
    return b"".join(parts)


def png_chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def deflated_zeros(num_bytes: int) -> bytes:
    """Zeros, packed into a thousandth of their size."""
    packer, piece = zlib.compressobj(6), bytes(1024 * 1024)
    parts = [packer.compress(piece) for _ in range(num_bytes // len(piece))]
    return b"".join([*parts, packer.compress(bytes(num_bytes % len(piece))), packer.flush()])


def with_scans(jpeg: bytes, num_scans: int) -> bytes:
    """A progressive JPEG whose last scan comes ``num_scans`` times more."""
    last = jpeg.rindex(b"\xff\xda")
    return jpeg[:-2] + jpeg[last:-2] * num_scans + jpeg[-2:]


def clip(num_frames: int, height: int = 48, width: int = 64) -> list[Pixels]:
    """Frames that tell their place: each is one grey level, 4 more than the one before it (modulo 200)."""
    return [np.full((height, width, 3), 20 + 4 * place % 200, np.uint8) for place in range(num_frames)]


def place_of(frame: Pixels) -> int:
    """Of a frame of a ``clip`` of up to 50 frames."""
    return round((float(frame.mean()) - 20) / 4)


def video_file(
    frames: Iterable[Pixels],
    kind: str = "mp4",
    codec: str = "libx264",
    rate: int = 10,
    *,
    rotation: int = 0,
    **options: str,
) -> bytes:
    """``kind``: mp4, avi, asf. Options are the codec's."""
    made = io.BytesIO()
    frames = list(frames)
    with av.open(made, "w", format=kind) as container:
        stream: Any = container.add_stream(codec, rate=rate, options=options)
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = {"mjpeg": "yuvj420p", "png": "rgb24", "ffv1": "yuv420p"}.get(codec, "yuv420p")
        stream.bit_rate = 2_000_000
        if rotation:
            stream.set_display_rotation(rotation)
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return made.getvalue()


def repeated(
    num_packets: int, height: int, width: int, *, kind: str = "mp4", ticks: int = 1, keys: bool = False
) -> bytes:
    """An MPEG-4 video of one picture and ``num_packets`` that change nothing, or with ``keys`` repeat it."""
    made = io.BytesIO()
    with av.open(made, "w", format=kind) as container:
        stream: Any = container.add_stream("mpeg4", rate=25)
        stream.height, stream.width, stream.pix_fmt = height, width, "yuv420p"
        still = np.zeros((height, width, 3), np.uint8)
        packets = [
            packet for _ in range(2) for packet in stream.encode(av.VideoFrame.from_ndarray(still, format="rgb24"))
        ]
        first, second = (bytes(packet) for packet in packets)
        for place in range(num_packets + 1):
            is_key = keys or not place
            packet = av.Packet(first if is_key else second)
            packet.stream, packet.time_base = stream, packets[0].time_base
            packet.pts = packet.dts = place * ticks
            packet.is_keyframe = is_key
            container.mux(packet)
    return made.getvalue()


def tone(seconds: float, rate: int = 16_000, channels: int = 1, hertz: float = 440.0) -> Samples:
    """(samples, channels): the same tone, less loud in each further channel."""
    times = np.arange(round(seconds * rate)) / rate
    return np.stack([0.5 * np.sin(2 * np.pi * hertz * times) / (1 + place) for place in range(channels)], -1)


def wav_file(samples: Samples, rate: int = 16_000) -> bytes:
    """16 bits, written by the standard library."""
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples * 32767).round().astype("<i2").tobytes())
    return made.getvalue()


def riff_wav(body: bytes, *, rate: int, channels: int, coding: int, bits: int, data_length: int | None = None) -> bytes:
    """A WAV by hand. ``coding``: 1 integers, 3 floats, 7 mu-law."""
    block = channels * bits // 8
    form = struct.pack("<HHIIHH", coding, channels, rate, rate * block % 2**32, block % 2**16, bits)
    length = len(body) if data_length is None else data_length
    chunks = b"WAVE" + b"fmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", length) + body
    return b"RIFF" + struct.pack("<I", min(len(chunks) + length - len(body), 2**32 - 1)) + chunks


def audio_file(samples: Samples, kind: str, rate: int = 16_000) -> bytes:
    """``kind``: mp3, flac, wav, mp4, adts, ogg."""
    codec = {"mp3": "libmp3lame", "wav": "pcm_s16le", "mp4": "aac", "adts": "aac", "ogg": "libopus"}.get(kind, kind)
    made = io.BytesIO()
    with av.open(made, "w", format=kind) as container:
        stream: Any = container.add_stream(codec, rate=rate, layout="mono" if samples.shape[1] == 1 else "stereo")
        whole = (samples.reshape(1, -1) * 32767).round().astype(np.int16)
        frame = av.AudioFrame.from_ndarray(whole, format="s16", layout=stream.layout.name)
        frame.sample_rate = rate
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return made.getvalue()


def boxes(data: bytes, path: Sequence[bytes]) -> list[tuple[int, int]]:
    """Start and end of each box on the way to the innermost of an ISO media file."""
    found, start, end = [], 0, len(data)
    for name in path:
        while data[start + 4 : start + 8] != name:
            start += int.from_bytes(data[start : start + 4], "big")
            assert start < end, name
        end = start + int.from_bytes(data[start : start + 4], "big")
        found.append((start, end))
        start += 8
    return found


def with_external_data(mp4: bytes, path: bytes) -> bytes:
    """An MP4 whose frames lie in another file, named by an alias."""
    way = boxes(mp4, [b"moov", b"trak", b"mdia", b"minf", b"dinf", b"dref"])
    record = struct.pack(">HH", 2, len(path)) + path + bytes(len(path) % 2) + struct.pack(">hH", -1, 0)
    alias = bytes(10) + bytes([3]) + b"vol".ljust(27, b"\0") + bytes(12) + bytes([1]) + b"x".ljust(63, b"\0")
    alias += bytes(16) + struct.pack(">HH", 1, 1) + bytes(16) + record
    entry = struct.pack(">I4sI", 12 + len(alias), b"alis", 0) + alias
    start, end = way[-1]
    changed = bytearray(mp4[: start + 16] + entry + mp4[end:])
    grown = len(changed) - len(mp4)
    for start, end in way:
        changed[start : start + 4] = struct.pack(">I", end - start + grown)
    return bytes(changed)
