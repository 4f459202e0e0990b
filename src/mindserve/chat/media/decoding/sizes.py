"""Arithmetic of sizes: how large the model sees an image or a frame, how many frames, and how many tokens these are.

Heights and widths are those of the model's grid: multiples of ``patch_size * merge_size`` pixels. The rules are those
of the processors of Qwen2-VL, Qwen2.5-VL and Qwen2-Audio in transformers. What breaks a limit is ``MediaRejected``.
"""

from __future__ import annotations

import math
from typing import Final

from mindserve.chat.media.decoding.decode_limits import DecodeLimits
from mindserve.chat.media.decoding.rejected import MediaRejected
from mindserve_engine.types import MediaKind, MediaModel

_FRAME_MARGIN: Final = 1.05
"""The most pixels of a frame are never fewer than this times the fewest: there must be a size between the two."""


def check_pixels(what: str, height: int, width: int, max_pixels: int, limits: DecodeLimits) -> None:
    """``what`` names the image or the frame in the refusal."""
    if height < 1 or width < 1:
        raise MediaRejected(f"{what} has no pixels ({width} x {height})")
    if height * width > max_pixels:
        raise MediaRejected(f"{what} has {width} x {height} pixels, more than the limit of {max_pixels}")
    if max(height, width) > limits.max_aspect * min(height, width):
        raise MediaRejected(
            f"{what} has {width} x {height} pixels: one side is more than {limits.max_aspect} times the other"
        )


def image_size(height: int, width: int, model: MediaModel, limits: DecodeLimits) -> tuple[int, int]:
    """Height and width at which the model sees an image of ``height`` by ``width`` pixels."""
    max_pixels = min(model.max_pixels, limits.max_image_tokens * _token_side(model) ** 2)
    size = _fit(height, width, _token_side(model), model.min_pixels, max(max_pixels, model.min_pixels))
    _check_tokens("the image", num_image_tokens(*size, model), limits.max_image_tokens)
    return size


def frame_size(num_frames: int, height: int, width: int, model: MediaModel, limits: DecodeLimits) -> tuple[int, int]:
    """Height and width at which the model sees each of the ``num_frames`` that are taken of a video."""
    budget = limits.max_video_tokens * _token_side(model) ** 2
    max_pixels = min(model.max_pixels, budget * model.frames_per_patch // num_frames)
    max_pixels = max(max_pixels, int(model.min_pixels * _FRAME_MARGIN))
    size = _fit(height, width, _token_side(model), model.min_pixels, max_pixels)
    _check_tokens("the video", num_video_tokens(num_frames, *size, model), limits.max_video_tokens)
    return size


def num_image_tokens(height: int, width: int, model: MediaModel) -> int:
    """Of an image that has the model's size."""
    return model.num_tokens(MediaKind.IMAGE, (height, width, 3))


def num_video_tokens(num_frames: int, height: int, width: int, model: MediaModel) -> int:
    """Of frames that have the model's size; an odd last frame is doubled."""
    return model.num_tokens(MediaKind.VIDEO, (num_frames, height, width, 3))


def num_audio_tokens(num_samples: int, model: MediaModel) -> int:
    """Of a recording at the model's rate; 0 when it is too short for one."""
    return model.num_tokens(MediaKind.AUDIO, (num_samples,))


def frames_to_take(num_frames: int, duration_s: float, model: MediaModel, limits: DecodeLimits) -> list[int]:
    """Which frames of a video of ``num_frames`` (at least 1) the model sees, in their order: evenly spread, as many as
    whole grid steps need. A video with fewer frames than a step has is seen as its first frame."""
    step = model.frames_per_patch
    wanted = max(duration_s * limits.frames_per_s, limits.min_frames)
    num_taken = int(min(wanted, limits.max_frames, num_frames) // step) * step or 1
    return [index * num_frames // num_taken for index in range(num_taken)]


def _token_side(model: MediaModel) -> int:
    return model.patch_size * model.merge_size


def _check_tokens(what: str, num_tokens: int, limit: int) -> None:
    if num_tokens > limit:
        raise MediaRejected(f"{what} takes {num_tokens} tokens, more than the limit of {limit}")


def _fit(height: int, width: int, side: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """The multiples of ``side`` nearest to height and width; if those make too many or too few pixels, the nearest
    below or above with about the same aspect."""
    rounded = round(height / side) * side, round(width / side) * side
    if rounded[0] * rounded[1] > max_pixels:
        shrink = math.sqrt(height * width / max_pixels)
        return max(side, int(height / shrink / side) * side), max(side, int(width / shrink / side) * side)
    if rounded[0] * rounded[1] < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        return math.ceil(height * grow / side) * side, math.ceil(width * grow / side) * side
    return rounded
