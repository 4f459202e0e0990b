"""Sizes and counts equal those of the processors of transformers."""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
import transformers
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers import WhisperFeatureExtractor
from transformers.models.qwen2_audio.modeling_qwen2_audio import Qwen2AudioEncoder
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil, smart_resize

from mindserve.chat.media.decoding.decode_limits import DecodeLimits
from mindserve.chat.media.decoding.rejected import MediaRejected
from mindserve.chat.media.decoding.sizes import (
    check_pixels,
    frame_size,
    frames_to_take,
    image_size,
    num_audio_tokens,
    num_image_tokens,
    num_video_tokens,
)
from mindserve_engine.types import MediaKind
from tests.mindserve.chat.media.decoding.makers import MODEL

LIMITS = DecodeLimits()
UNCAPPED = replace(LIMITS, max_image_tokens=10**9, max_video_tokens=10**9)
PROCESSOR = Qwen2VLImageProcessorPil()
VIDEO_PROCESSOR = Path(transformers.__file__).parent / "models/qwen2_vl/video_processing_qwen2_vl.py"


def _from_video_processor(name: str) -> Callable[..., Any]:
    """A method of transformers' video processor, whose module cannot be imported without torchvision."""
    tree = ast.parse(VIDEO_PROCESSOR.read_text("utf-8"))
    method = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name)
    scope: dict[str, Any] = {"math": math, "torch": torch, "VideoMetadata": object}
    exec(ast.unparse(method), scope)
    function: Callable[..., Any] = scope[name]
    return function


SAMPLE_FRAMES = _from_video_processor("sample_frames")


@settings(max_examples=300)
@given(height=st.integers(1, 6000), width=st.integers(1, 6000), max_tokens=st.integers(4, 20_000))
def test_an_image_has_the_size_that_the_processor_gives_it(height: int, width: int, max_tokens: int) -> None:
    model = msgspec.structs.replace(MODEL, max_pixels=max_tokens * 28 * 28)
    if max(height, width) > 200 * min(height, width):
        with pytest.raises(MediaRejected):
            check_pixels("the image", height, width, LIMITS.max_image_pixels, LIMITS)
        return
    size = image_size(height, width, model, UNCAPPED)
    assert size == smart_resize(height, width, 28, model.min_pixels, model.max_pixels)
    pixels = {"min_pixels": model.min_pixels, "max_pixels": model.max_pixels}
    assert num_image_tokens(*size, model) * 4 == PROCESSOR.get_number_of_image_patches(height, width, pixels)


@given(height=st.integers(1, 8000), width=st.integers(1, 8000))
def test_the_cap_of_tokens_makes_an_image_smaller(height: int, width: int) -> None:
    model = msgspec.structs.replace(MODEL, max_pixels=16_384 * 28 * 28)
    if max(height, width) <= 200 * min(height, width):
        assert num_image_tokens(*image_size(height, width, model, LIMITS), model) <= 4096


def test_an_image_whose_aspect_leaves_no_size_within_the_cap_is_refused() -> None:
    with pytest.raises(MediaRejected, match="the image takes 40 tokens, more than the limit of 8"):
        image_size(28, 28 * 200, MODEL, replace(LIMITS, max_image_tokens=8))


@pytest.mark.parametrize(
    ("height", "width", "said"),
    [
        (0, 5, r"no pixels \(5 x 0\)"),
        (8193, 8192, "8192 x 8193 pixels, more than the limit of 67108864"),
        (1, 201, "201 x 1 pixels: one side is more than 200 times the other"),
    ],
)
def test_sizes_beyond_the_limits(height: int, width: int, said: str) -> None:
    with pytest.raises(MediaRejected, match=said):
        check_pixels("the image", height, width, LIMITS.max_image_pixels, LIMITS)


def test_sizes_at_the_limits_pass() -> None:
    check_pixels("the image", 8192, 8192, LIMITS.max_image_pixels, LIMITS)
    check_pixels("the image", 1, 200, LIMITS.max_image_pixels, LIMITS)


@settings(max_examples=300)
@given(total=st.integers(2, 5000), rate=st.floats(0.5, 120), fps=st.floats(0.1, 30))
def test_the_frames_are_those_that_the_processor_samples(total: int, rate: float, fps: float) -> None:
    limits = replace(LIMITS, frames_per_s=fps)
    taken = frames_to_take(total, total / rate, MODEL, limits)
    processor = SimpleNamespace(num_frames=None, fps=None, temporal_patch_size=2, min_frames=4, max_frames=64)
    metadata = SimpleNamespace(total_num_frames=total, fps=rate)
    theirs = SAMPLE_FRAMES(processor, metadata, fps=fps).tolist()
    # theirs steps by a rounded quotient: it may reach one frame more, and where a place is a whole number one lower
    assert len(theirs) - len(taken) in (0, 1)
    assert all(ours - their in (0, 1) for ours, their in zip(taken, theirs, strict=False))
    assert len(taken) % 2 == 0


@pytest.mark.parametrize(
    ("total", "duration_s", "count"),
    [(1, 0.0, 1), (2, 0.1, 2), (3, 0.1, 2), (100, 1.0, 4), (100, 10.0, 20), (100, 10.9, 20), (9000, 3600.0, 64)],
)
def test_how_many_frames_are_taken(total: int, duration_s: float, count: int) -> None:
    assert len(frames_to_take(total, duration_s, MODEL, LIMITS)) == count


@settings(max_examples=300)
@given(
    num_frames=st.integers(1, 64),
    height=st.integers(28, 3000),
    width=st.integers(28, 3000),
    budget=st.integers(200, 50_000),
)
def test_a_frame_has_the_size_that_the_capped_processor_gives_it(
    num_frames: int, height: int, width: int, budget: int
) -> None:
    """Its rule for the pixels of a frame, with our budget for the whole video."""
    if max(height, width) > 200 * min(height, width):
        return
    limits = replace(LIMITS, max_video_tokens=budget)
    cap = max(min(MODEL.max_pixels, budget * 28 * 28 * 2 // num_frames), int(MODEL.min_pixels * 1.05))
    theirs = smart_resize(height, width, 28, MODEL.min_pixels, cap)
    count = math.ceil(num_frames / 2) * theirs[0] * theirs[1] // 28**2
    if count > budget:
        with pytest.raises(MediaRejected, match=f"the video takes {count} tokens, more than the limit of {budget}"):
            frame_size(num_frames, height, width, MODEL, limits)
    else:
        assert frame_size(num_frames, height, width, MODEL, limits) == theirs
        assert num_video_tokens(num_frames, *theirs, MODEL) == count


def test_the_rule_for_the_pixels_of_a_frame_is_still_theirs() -> None:
    source = VIDEO_PROCESSOR.read_text("utf-8")
    assert "min(max_pixels, total_pixels * temporal_factor // num_frames), int(size.shortest_edge * 1.05)" in source


@given(
    num_frames=st.integers(1, 32).map(lambda steps: 2 * steps),
    height=st.integers(64, 2304),
    width=st.integers(64, 4096),
)
def test_ordinary_videos_fit_the_default_cap(num_frames: int, height: int, width: int) -> None:
    assume(max(height, width) <= 3 * min(height, width))  # a strip is as long as it is
    size = frame_size(num_frames, height, width, MODEL, LIMITS)
    assert num_video_tokens(num_frames, *size, MODEL) <= 8192


def test_the_tokens_of_a_recording_are_those_of_the_encoder() -> None:
    extractor = WhisperFeatureExtractor(feature_size=128)
    for num_samples in (1, 159, 320, 321, 480, 481, 640, 641, 8000, 15_999, 16_000, 16_001, 479_999, 480_000):
        features = extractor(
            np.zeros(num_samples, np.float32), sampling_rate=16_000, return_attention_mask=True, padding="max_length"
        )
        num_features = torch.as_tensor(features["attention_mask"]).sum(-1)
        _, theirs = Qwen2AudioEncoder._get_feat_extract_output_lengths(SimpleNamespace(), num_features)
        assert num_audio_tokens(num_samples, MODEL) == max(0, int(theirs)), num_samples


def test_the_longest_recording_has_750_tokens() -> None:
    assert num_audio_tokens(480_000, MODEL) == 750


@pytest.mark.parametrize(
    ("kind", "shape", "count"),
    [
        (MediaKind.IMAGE, (56, 84, 3), 6),
        (MediaKind.VIDEO, (4, 56, 84, 3), 12),
        (MediaKind.VIDEO, (5, 56, 84, 3), 18),
        (MediaKind.AUDIO, (16_000,), 25),
    ],
)
def test_tokens_by_kind(kind: MediaKind, shape: tuple[int, ...], count: int) -> None:
    assert MODEL.num_tokens(kind, shape) == count


def test_the_lifted_method_is_a_whole_one() -> None:
    assert "min_frames" in inspect.signature(SAMPLE_FRAMES).parameters
