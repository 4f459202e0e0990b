"""Pixels equal those that transformers' processor makes of the same picture."""

from __future__ import annotations

import io
import tracemalloc
import zlib

import numpy as np
import pytest
from PIL import Image, PngImagePlugin
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from mindserve.chat.media.decoding.decode_limits import DecodeLimits
from mindserve.chat.media.decoding.rejected import MediaRejected
from mindserve.chat.media.decoding.worker import decode
from mindserve_engine.types import MediaKind
from tests.mindserve.chat.media.decoding.makers import (
    MODEL,
    Pixels,
    deflated_zeros,
    image_file,
    picture,
    png,
    with_scans,
)

LIMITS = DecodeLimits()
PROCESSOR = Qwen2VLImageProcessorPil(min_pixels=MODEL.min_pixels, max_pixels=MODEL.max_pixels)


def decoded(data: bytes, limits: DecodeLimits = LIMITS) -> Pixels:
    array, seconds_per_frame = decode(MediaKind.IMAGE, io.BytesIO(data), MODEL, limits)
    assert seconds_per_frame == 0.0
    assert array.dtype == np.uint8
    return array  # type: ignore[return-value]  # the dtype was just looked at


def resized(image: Image.Image) -> Pixels:
    """``image`` as the processor resizes it, before it normalises."""
    height, width = decoded(image_file(image.convert("RGB"))).shape[:2]
    return np.asarray(image.convert("RGB").resize((width, height), resample=Image.Resampling.BICUBIC))


def _normalised_patches(pixels: Pixels) -> np.ndarray:
    image = PROCESSOR.rescale(pixels.transpose(2, 0, 1), PROCESSOR.rescale_factor)
    image = PROCESSOR.normalize(image, PROCESSOR.image_mean, PROCESSOR.image_std)
    return PROCESSOR.patchify(image, 14, 2, 2)[0]


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("size", [(28, 28), (30, 40), (480, 640), (1200, 1600), (97, 1900), (1, 200), (8, 8)])
def test_pixels_equal_those_of_the_processor(kind: str, size: tuple[int, int]) -> None:
    data = image_file(picture(*size), kind)
    theirs = PROCESSOR(images=[Image.open(io.BytesIO(data))], return_tensors="np")
    ours = decoded(data)
    grid = [1, ours.shape[0] // 14, ours.shape[1] // 14]
    assert theirs["image_grid_thw"].tolist() == [grid]
    np.testing.assert_array_equal(_normalised_patches(ours), theirs["pixel_values"])


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "CMYK"])
def test_every_mode_becomes_rgb_as_pillow_converts_it(mode: str) -> None:
    image = Image.fromarray(picture(56, 84)).convert(mode)
    data = image_file(image, "JPEG" if mode == "CMYK" else "PNG", **({"quality": 95} if mode == "CMYK" else {}))
    with Image.open(io.BytesIO(data)) as again:
        np.testing.assert_array_equal(decoded(data), resized(again.convert("RGB")))


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_what_is_transparent_is_white(mode: str) -> None:
    image = Image.new("RGBA", (56, 56), (200, 30, 30, 0)).convert(mode)
    image.paste(Image.new("RGBA", (28, 56), (10, 10, 10, 255)).convert(mode), (0, 0))
    pixels = decoded(image_file(image))
    assert pixels[5, 5].tolist() == [10, 10, 10]
    assert pixels[5, 50].tolist() == [255, 255, 255]


def test_half_transparent_colours_are_mixed_with_white() -> None:
    assert decoded(image_file(Image.new("RGBA", (56, 56), (0, 0, 255, 128))))[9, 9].tolist() == [127, 127, 255]


def test_a_colour_that_stands_for_transparency_is_white() -> None:
    image = Image.fromarray(np.full((56, 56, 3), 7, np.uint8))
    assert decoded(image_file(image, transparency=(7, 7, 7)))[3, 3].tolist() == [255, 255, 255]
    assert decoded(image_file(image.convert("L"), transparency=7))[3, 3].tolist() == [255, 255, 255]
    assert decoded(image_file(image.convert("P"), transparency=image.convert("P").getpixel((0, 0))))[3, 3].min() == 255


def test_sixteen_bits_keep_their_levels() -> None:
    levels = (np.arange(56 * 56).reshape(56, 56) * 20).astype(np.uint16)
    pixels = decoded(image_file(Image.fromarray(levels)))
    np.testing.assert_array_equal(pixels[..., 0], levels >> 8)
    assert len(np.unique(pixels)) > 200


def test_a_level_of_sixteen_bits_that_stands_for_transparency_is_white() -> None:
    levels = np.full((56, 56), 4096, np.uint16)
    levels[:28] = 8192
    pixels = decoded(image_file(Image.fromarray(levels), transparency=4096))
    assert (pixels[3, 3, 0], pixels[50, 50, 0]) == (32, 255)


def test_sixteen_bits_per_colour_are_read() -> None:
    row = b"\0" + b"\x40\x00\x80\x00\xc0\x00" * 56
    assert decoded(png(56, 56, zlib.compress(row * 56), depth=16, colour=2))[5, 5].tolist() == [64, 128, 192]


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_stand_as_the_camera_was_held(kind: str, orientation: int) -> None:
    upright = np.zeros((56, 84, 3), np.uint8)
    upright[:28, :42], upright[:28, 42:], upright[28:, :42] = 250, 150, 80
    turn = {
        1: lambda a: a,
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.transpose(1, 0, 2),
        6: lambda a: np.rot90(a, 1),
        7: lambda a: np.rot90(a, 2).transpose(1, 0, 2),
        8: lambda a: np.rot90(a, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.fromarray(np.ascontiguousarray(turn(upright)))
    options = {"quality": 100, "subsampling": 0} if kind == "JPEG" else {}
    pixels = decoded(image_file(stored, kind, exif=exif, **options))
    assert pixels.shape == upright.shape
    inner = [(10, 10), (10, 70), (45, 10), (45, 70)]
    assert [round(int(pixels[place][0]), -1) for place in inner] == [250, 150, 80, 0]


@pytest.mark.parametrize(
    "exif", [b"Exif\0\0garbage", b"Exif\0\0MM\0*\xff\xff\xff\xff", b"Exif\0\0II*\0\x08\0\0\0\xff\xff"]
)
def test_a_broken_orientation_is_ignored(exif: bytes) -> None:
    assert decoded(image_file(picture(56, 84), "JPEG", exif=exif)).shape == (56, 84, 3)


def test_of_an_animation_the_default_image_is_taken() -> None:
    frames = [Image.new("RGB", (56, 56), colour) for colour in ("red", "green", "blue")]
    data = image_file(frames[0], save_all=True, append_images=frames[1:], duration=100)
    assert Image.open(io.BytesIO(data)).n_frames == 3
    assert decoded(data)[0, 0].tolist() == [255, 0, 0]


def test_of_several_photographs_in_a_file_the_first_is_taken() -> None:
    photographs = [Image.new("RGB", (56, 56), colour) for colour in ("white", "black")]
    data = image_file(photographs[0], "MPO", save_all=True, append_images=photographs[1:])
    assert Image.open(io.BytesIO(data)).format == "MPO"
    assert decoded(data).min() == 255


def test_progressive_photographs_are_read() -> None:
    data = image_file(picture(200, 300), "JPEG", progressive=True)
    assert decoded(data).shape == (196, 308, 3)


def test_scans_are_counted_as_a_decoder_meets_them() -> None:
    progressive = image_file(picture(64, 64), "JPEG", progressive=True)
    num_scans = progressive.count(b"\xff\xda")
    limits = DecodeLimits(max_jpeg_scans=num_scans + 3)
    assert decoded(with_scans(progressive, 3), limits).shape == (56, 56, 3)
    with pytest.raises(MediaRejected, match=f"more scans than the limit of {num_scans + 3}"):
        decoded(with_scans(progressive, 4), limits)


def test_what_looks_like_a_scan_in_a_comment_or_behind_the_end_does_not_count() -> None:
    data = image_file(picture(64, 64), "JPEG", comment=b"\xff\xda" * 500) + b"\xff\xda" * 500
    assert decoded(data).shape == (56, 56, 3)


def test_a_text_chunk_is_no_reason_to_refuse() -> None:
    info = PngImagePlugin.PngInfo()
    info.add_text("comment", "words " * 100, zip=True)
    assert decoded(image_file(picture(56, 56), pnginfo=info)).shape == (56, 56, 3)


def test_pixels_are_not_decoded_before_their_number_is_checked() -> None:
    data = png(9400, 9400, deflated_zeros(9400 * 9401))
    tracemalloc.start()
    try:
        with pytest.raises(MediaRejected, match="9400 x 9400 pixels, more than the limit of 67108864"):
            decoded(data)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def test_the_cap_of_tokens_holds() -> None:
    pixels = decoded(image_file(picture(600, 800)), DecodeLimits(max_image_tokens=100))
    assert pixels.shape[0] * pixels.shape[1] <= 100 * 28 * 28
