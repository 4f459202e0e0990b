"""The frames that are taken are those at the places asked for, whatever the container tells of times."""

from __future__ import annotations

import io
import socket
import struct
from dataclasses import replace

import av
import numpy as np
import pytest
from PIL import Image

from mindserve.chat.media.decoding.decode_limits import DecodeLimits
from mindserve.chat.media.decoding.opening import opened
from mindserve.chat.media.decoding.rejected import MediaRejected
from mindserve.chat.media.decoding.sizes import frames_to_take
from mindserve.chat.media.decoding.sniff import Container
from mindserve.chat.media.decoding.worker import decode
from mindserve_engine.types import MediaKind
from tests.mindserve.chat.media.decoding import makers
from tests.mindserve.chat.media.decoding.makers import MODEL, Pixels, clip, place_of, video_file

LIMITS = DecodeLimits()
CODECS = [
    ("mp4", "libx264"),
    ("mp4", "libx265"),
    ("mp4", "mpeg4"),
    ("avi", "libx264"),
    ("avi", "mpeg4"),
    ("avi", "mjpeg"),
    ("asf", "wmv1"),
    ("asf", "wmv2"),
    ("asf", "msmpeg4"),
]


def decoded(data: bytes, limits: DecodeLimits = LIMITS) -> tuple[Pixels, float]:
    array, seconds_per_frame = decode(MediaKind.VIDEO, io.BytesIO(data), MODEL, limits)
    assert array.dtype == np.uint8
    return array, seconds_per_frame  # type: ignore[return-value]  # the dtype was just looked at


def quiet(codec: str) -> dict[str, str]:
    return {"x265-params": "log-level=none"} if codec == "libx265" else {}


@pytest.mark.parametrize(("kind", "codec"), CODECS)
@pytest.mark.parametrize(("num_frames", "rate", "g"), [(40, 10, "250"), (40, 5, "5"), (37, 4, "12"), (9, 10, "3")])
def test_frames_are_those_at_the_places_that_are_taken(
    kind: str, codec: str, num_frames: int, rate: int, g: str
) -> None:
    frames, seconds_per_frame = decoded(video_file(clip(num_frames), kind, codec, rate, g=g, **quiet(codec)))
    places = frames_to_take(num_frames, num_frames / rate, MODEL, LIMITS)
    assert [place_of(frame) for frame in frames] == places
    assert seconds_per_frame == pytest.approx(num_frames / rate / len(places), rel=0.02)
    assert frames.shape[1:] == (56, 56, 3)


@pytest.mark.parametrize(("kind", "codec"), [("mp4", "libx264"), ("avi", "mpeg4"), ("asf", "wmv2")])
def test_long_videos_are_read_from_their_keyframes(kind: str, codec: str) -> None:
    """300 frames of which 64 are taken at most; the grey levels come again every 50 frames."""
    frames, _ = decoded(video_file(clip(300), kind, codec, rate=2, g="3"))
    assert [place_of(frame) for frame in frames] == [place % 50 for place in frames_to_take(300, 150, MODEL, LIMITS)]


def test_a_frame_is_resized_as_an_image_is() -> None:
    frame = makers.picture(480, 640)
    data = video_file([frame] * 4, "avi", "mjpeg")
    with av.open(io.BytesIO(data)) as container:
        whole = next(container.decode(video=0)).to_ndarray(format="rgb24")
    pixels, _ = decoded(data)
    height, width = pixels.shape[1:3]
    theirs = Image.fromarray(whole).resize((width, height), resample=Image.Resampling.BICUBIC)
    np.testing.assert_array_equal(pixels[0], np.asarray(theirs))


def test_many_frames_are_made_smaller() -> None:
    few, many = (
        decoded(video_file([np.zeros((480, 640, 3), np.uint8)] * count, rate=2, preset="ultrafast"))[0]
        for count in (4, 64)
    )
    assert len(many) == 64
    assert many.shape[1] * many.shape[2] * 32 <= 8192 * 28 * 28 < few.shape[1] * few.shape[2] * 32


def test_a_single_frame_is_a_video() -> None:
    frames, seconds_per_frame = decoded(video_file(clip(1), "avi", "mpeg4"))
    assert (frames.shape, seconds_per_frame) == ((1, 56, 56, 3), 0.0)


def _with_matrix(mp4: bytes, turn: tuple[int, int, int, int]) -> bytes:
    """The display matrix of its track, as ISO 14496-12 has it: (x, y) is shown at (a x + c y, b x + d y)."""
    start, _ = makers.boxes(mp4, [b"moov", b"trak", b"tkhd"])[-1]
    place, (a, b, c, d) = start + 48, (number << 16 for number in turn)
    return mp4[:place] + struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30) + mp4[place + 36 :]


@pytest.mark.parametrize(
    ("turn", "corners"),
    [
        ((1, 0, 0, 1), [240, 120, 60, 0]),
        ((0, 1, -1, 0), [60, 240, 0, 120]),  # clockwise
        ((0, -1, 1, 0), [120, 0, 240, 60]),
        ((-1, 0, 0, -1), [0, 60, 120, 240]),
    ],
)
def test_videos_stand_as_the_camera_was_held(turn: tuple[int, int, int, int], corners: list[int]) -> None:
    frame = np.zeros((112, 168, 3), np.uint8)
    frame[:56, :84], frame[:56, 84:], frame[56:, :84] = 240, 120, 60
    frames, _ = decoded(_with_matrix(video_file([frame] * 4), turn))
    height, width = frames.shape[1:3]
    assert (height, width) == ((112, 168) if turn[0] else (168, 112))
    inner = [(9, 9), (9, width - 9), (height - 9, 9), (height - 9, width - 9)]
    assert [abs(int(frames[0][place][0]) - level) < 8 for place, level in zip(inner, corners, strict=True)] == [
        True
    ] * 4


def test_sound_beside_the_frames_is_passed_over() -> None:
    made = io.BytesIO()
    with av.open(made, "w", format="mp4") as container:
        sound = container.add_stream("aac", rate=16_000, layout="mono")
        stream = container.add_stream("libx264", rate=10)
        stream.height, stream.width, stream.pix_fmt = 48, 64, "yuv420p"
        for frame in clip(20):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        noise = av.AudioFrame.from_ndarray(np.zeros((1, 32_000), np.float32), format="fltp", layout="mono")
        noise.sample_rate = 16_000
        container.mux(sound.encode(noise))
        container.mux(sound.encode())
        container.mux(stream.encode())
    frames, _ = decoded(made.getvalue())
    assert [place_of(frame) for frame in frames] == [0, 5, 10, 15]


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (DecodeLimits(max_packets=19), "more than 19 frames, the limit"),
        (DecodeLimits(max_video_s=1.9), "is 2 s long, the limit is 1.9 s"),
        (DecodeLimits(max_frame_pixels=3071), "64 x 48 pixels, more than the limit of 3071"),
        (
            DecodeLimits(max_decoded_pixels=16 * 3072 - 1),
            "16 frames of the video would have to be decoded, 49152 pixels",
        ),
        (DecodeLimits(max_aspect=1), "one side is more than 1 times the other"),
        (DecodeLimits(max_video_tokens=7), "the video takes 8 tokens, more than the limit of 7"),
    ],
)
def test_limits_are_named(limits: DecodeLimits, said: str) -> None:
    """20 frames of 64 x 48; 0, 5, 10 and 15 are taken, and decoded from one keyframe."""
    data = video_file(clip(20))
    with pytest.raises(MediaRejected, match=said):
        decoded(data, limits)


def test_at_their_limits_videos_pass() -> None:
    limits = DecodeLimits(
        max_packets=20, max_video_s=2.01, max_frame_pixels=3072, max_decoded_pixels=16 * 3072, max_video_tokens=8
    )
    assert len(decoded(video_file(clip(20)), limits)[0]) == 4


def test_keyframes_save_work() -> None:
    limits = DecodeLimits(max_decoded_pixels=4 * 3072)
    data = video_file(clip(20), "avi", "mjpeg")
    assert [place_of(frame) for frame in decoded(data, limits)[0]] == [0, 5, 10, 15]


def test_work_is_bounded_where_seeks_do_not_help() -> None:
    """A short WMV is one block: every frame up to the last one is decoded, once."""
    data = video_file(clip(40), "asf", "wmv2", rate=4, g="1")
    num_decoded = frames_to_take(40, 10, MODEL, LIMITS)[-1] + 1
    with pytest.raises(MediaRejected, match="frames of the video would have to be decoded"):
        decoded(data, replace(LIMITS, max_decoded_pixels=(num_decoded - 1) * 3072))
    assert len(decoded(data, replace(LIMITS, max_decoded_pixels=(num_decoded + 10) * 3072))[0]) == 20


def test_fewer_frames_per_second_are_taken_when_asked() -> None:
    data = video_file(clip(50), "mp4")
    assert len(decoded(data, replace(LIMITS, frames_per_s=4.0))[0]) == 20
    assert len(decoded(data, replace(LIMITS, frames_per_s=4.0, max_frames=8))[0]) == 8


@pytest.mark.parametrize("container", [Container.MP4, Container.AVI, Container.WMV])
def test_texts_that_name_other_files_open_none(container: Container) -> None:
    """Were the format not forced, these would: FFmpeg's libraries follow each of them."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        port = server.getsockname()[1]
        texts = [
            "ffconcat version 1.0\nfile 'pyproject.toml'\n",
            f"ffconcat version 1.0\nfile 'http://127.0.0.1:{port}/a.mp4'\n",
            f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nhttp://127.0.0.1:{port}/a.ts\n#EXT-X-ENDLIST\n",
            "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n",
            f"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video {port} RTP/AVP 96\n",
        ]
        for text in texts:
            with pytest.raises(MediaRejected), opened(io.BytesIO(text.encode()), container) as found:
                list(found.demux())
        with pytest.raises(BlockingIOError):
            server.accept()
