"""A video file to the frames that the model sees. Runs in the processes that decode.

Two passes: the first reads the packets without decoding any, which tells the true number and times of the frames and
what must be decoded to reach those that are taken, whatever the headers say. Only then is something decoded.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import BinaryIO, Final

import av.container
import av.stream
import numpy as np
import numpy.typing as npt
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from PIL import Image

from mindserve.chat.media.decoding.decode_limits import DecodeLimits
from mindserve.chat.media.decoding.opening import ignore_others, opened
from mindserve.chat.media.decoding.rejected import MediaRejected
from mindserve.chat.media.decoding.sizes import check_pixels, frame_size, frames_to_take
from mindserve.chat.media.decoding.sniff import Container
from mindserve_engine.types import MediaModel

CODECS: Final = frozenset({"h264", "hevc", "mpeg4", "msmpeg4", "wmv1", "wmv2", "wmv3", "vc1", "mjpeg"})
_QUARTER: Final = 90


@dataclass(frozen=True, slots=True)
class _Index:
    """What the packets tell."""

    stream: int
    times: list[int]
    """Of all frames, in the order in which they are shown."""
    keys: list[int]
    """Places in ``times`` from which decoding can start; 0 is the first."""
    duration_s: Fraction
    """Of all frames, each as long as they are on average; 0 of a single one."""


def decode_video(
    file: BinaryIO, container: Container, model: MediaModel, limits: DecodeLimits
) -> tuple[npt.NDArray[np.uint8], float]:
    """(frames, height, width, 3) in RGB, upright, and the seconds between two of them.

    Raises ``MediaRejected``.
    """
    options = {"max_pixels": str(limits.max_frame_pixels), "codec_whitelist": ",".join(sorted(CODECS))}
    with opened(file, container, **options) as opened_container:
        stream = _video_stream(opened_container)
        context = stream.codec_context
        check_pixels("the video", context.height, context.width, limits.max_frame_pixels, limits)
        frame_pixels = context.height * context.width
        index = _read_index(opened_container, stream, limits)
    taken = frames_to_take(len(index.times), float(index.duration_s), model, limits)
    _check_work(_frames_to_decode(taken, index.keys), frame_pixels, limits)
    with opened(file, container, **options) as opened_container:
        decoder = _Decoder(opened_container, container, index, limits)
        frames = [_resized(frame, len(taken), model, limits) for frame in decoder.frames_at(taken)]
    return np.stack(frames), float(index.duration_s / len(taken))


def _video_stream(container: av.container.InputContainer) -> VideoStream:
    for stream in container.streams.video:
        is_cover = stream.disposition & av.stream.Disposition.attached_pic
        if not is_cover and stream.codec_context is not None and stream.codec_context.name in CODECS:
            ignore_others(container, stream)
            return stream
    raise MediaRejected("the file has no video stream of a codec that is taken")


def _read_index(container: av.container.InputContainer, stream: VideoStream, limits: DecodeLimits) -> _Index:
    packets: list[tuple[int, bool]] = []
    for packet in container.demux(stream):
        time = packet.pts if packet.pts is not None else packet.dts
        if time is not None and packet.size and not packet.is_discard:
            packets.append((time, packet.is_keyframe))
        if len(packets) > limits.max_packets:
            raise MediaRejected(f"the video has more than {limits.max_packets} frames, the limit")
    if not packets:
        raise MediaRejected("the video has no frames")
    packets.sort()
    times = [time for time, _ in packets]
    keys = {0, *(place for place, (_, is_key) in enumerate(packets) if is_key)}
    return _Index(stream.index, times, sorted(keys), _duration_s(times, stream.time_base or Fraction(0), limits))


def _duration_s(times: list[int], time_base: Fraction, limits: DecodeLimits) -> Fraction:
    """Exact: rounding would lose a frame where the duration is a whole number of steps."""
    if len(times) == 1:
        return Fraction(0)
    duration_s = (times[-1] - times[0]) * time_base * len(times) / (len(times) - 1)
    if duration_s <= 0:
        raise MediaRejected("all frames of the video have the same time")
    if duration_s > limits.max_video_s:
        raise MediaRejected(f"the video is {float(duration_s):.0f} s long, the limit is {limits.max_video_s:g} s")
    return duration_s


def _key_before(keys: list[int], place: int) -> int:
    return keys[bisect_right(keys, place) - 1]


def _frames_to_decode(taken: list[int], keys: list[int]) -> int:
    """From each frame that is taken back to the one before it, or to the keyframe between the two."""
    steps = pairwise([-1, *taken])
    return sum(place - max(before, _key_before(keys, place) - 1) for before, place in steps)


def _check_work(num_frames: int, frame_pixels: int, limits: DecodeLimits) -> None:
    num_pixels = num_frames * frame_pixels
    if num_pixels > limits.max_decoded_pixels:
        raise MediaRejected(
            f"{num_frames} frames of the video would have to be decoded, {num_pixels} pixels: "
            f"more than the limit of {limits.max_decoded_pixels}"
        )


class _Decoder:
    """Finds frames by their place in the order in which they are shown."""

    def __init__(
        self,
        container: av.container.InputContainer,
        kind: Container,
        index: _Index,
        limits: DecodeLimits,
    ) -> None:
        self._container = container
        self._stream = next(stream for stream in container.streams.video if stream.index == index.stream)
        ignore_others(container, self._stream)
        context = self._stream.codec_context
        context.thread_count = 1
        context.options = {"max_pixels": str(limits.max_frame_pixels)}
        # others tell the times at which frames are stored; they come out in the order in which they are shown
        self._has_times = kind is Container.MP4
        self._index = index
        self._limits = limits
        self._num_decoded = 0
        self._seeks_help = True
        self._size: tuple[int, int] | None = None

    def frames_at(self, places: list[int]) -> Iterator[VideoFrame]:
        """The frames at these places, which ascend. Raises ``MediaRejected`` when one does not come."""
        position, frames = -1, self._container.decode(self._stream)
        for wanted in places:
            key, before = _key_before(self._index.keys, wanted), position
            is_first = position < 0
            if key > position + 1 and self._seeks_help:
                self._container.seek(self._index.times[key], stream=self._stream)
                frames, is_first = self._container.decode(self._stream), True
            frame = None
            while frame is None or position < wanted:
                frame = self._next(frames)
                position, is_first = self._place(frame, position, is_first=is_first), False
                # a file without an index (WMV) is entered where a block of frames begins, often long before
                self._seeks_help = self._seeks_help and position > before
            if frame.is_corrupt:
                raise MediaRejected("frames of the video are damaged")
            yield frame

    def _next(self, frames: Iterator[VideoFrame]) -> VideoFrame:
        frame = next(frames, None)
        if frame is None:
            raise MediaRejected("the video ends before its last frames")
        self._num_decoded += 1
        _check_work(self._num_decoded, frame.height * frame.width, self._limits)
        if self._size is None:
            check_pixels("a frame of the video", frame.height, frame.width, self._limits.max_frame_pixels, self._limits)
            self._size = frame.height, frame.width
        elif self._size != (frame.height, frame.width):
            raise MediaRejected("the frames of the video change their size")
        return frame

    def _place(self, frame: VideoFrame, before: int, *, is_first: bool) -> int:
        """Frames without times follow one another; the first behind a seek tells where it is."""
        if frame.pts is None or not (is_first or self._has_times):
            return before + 1
        place = bisect_left(self._index.times, frame.pts)
        return place if is_first else max(before + 1, place)


def _resized(frame: VideoFrame, num_frames: int, model: MediaModel, limits: DecodeLimits) -> npt.NDArray[np.uint8]:
    pixels = np.rot90(frame.to_ndarray(format="rgb24"), round(frame.rotation / _QUARTER) % 4)
    height, width = frame_size(num_frames, pixels.shape[0], pixels.shape[1], model, limits)
    image = Image.fromarray(np.ascontiguousarray(pixels))
    return np.asarray(image.resize((width, height), resample=Image.Resampling.BICUBIC))
