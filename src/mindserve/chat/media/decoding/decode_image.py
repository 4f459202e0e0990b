"""An image file to pixels at the size the model sees. Runs in the processes that decode."""

from __future__ import annotations

import io
import re
import warnings
from typing import Final

import numpy as np
import numpy.typing as npt
from PIL import Image

from mindserve.chat.media.decoding.decode_limits import DecodeLimits
from mindserve.chat.media.decoding.rejected import MediaRejected
from mindserve.chat.media.decoding.sizes import check_pixels, image_size
from mindserve.chat.media.decoding.sniff import Container
from mindserve_engine.types import MediaModel

_FORMATS: Final = ("JPEG", "PNG")
"""Photographs of several pictures (MPO) come with the first."""
_WHITE: Final = 255
_ORIENTATION: Final = 0x0112
"""The EXIF tag."""
_TURNS: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_MARKER: Final = re.compile(rb"\xff[^\x00\xff]")
_START_OF_SCAN: Final = 0xDA
_END_OF_IMAGE: Final = 0xD9
_BARE_MARKERS: Final = frozenset({0x01, *range(0xD0, 0xD9)})
"""They have no length: TEM, RST0 to RST7, SOI."""

Image.MAX_IMAGE_PIXELS = None  # the limit is ours and names its numbers; it is checked before pixels are decoded


def decode_image(data: bytes, container: Container, model: MediaModel, limits: DecodeLimits) -> npt.NDArray[np.uint8]:
    """(height, width, 3): RGB, upright, on white where it is transparent, resized as the model's processor would.

    Of several pictures in one file (animations, stereo photographs) the first. Raises ``MediaRejected``.
    """
    if container is Container.JPEG:
        _check_scans(data, limits.max_jpeg_scans)
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            check_pixels("the image", image.height, image.width, limits.max_image_pixels, limits)
            image.load()
            upright = _turned(image)
            colours = _on_white(upright)
            height, width = image_size(colours.height, colours.width, model, limits)
            return np.asarray(colours.resize((width, height), resample=Image.Resampling.BICUBIC))
    except (MediaRejected, MemoryError):
        raise
    except Exception as error:  # SyntaxError and struct.error among them: a decoder's own are not told apart
        raise MediaRejected(f"the bytes are no valid {container.value} image") from error


def _check_scans(data: bytes, limit: int) -> None:
    """Count the scans as a decoder meets them: what lies in comments and behind the end of the image does not count."""
    num_scans, place = 0, 2
    while (found := _MARKER.search(data, place)) is not None:
        marker, place = data[found.start() + 1], found.end()
        if marker == _END_OF_IMAGE:
            return
        if marker in _BARE_MARKERS:
            continue
        num_scans += marker == _START_OF_SCAN
        if num_scans > limit:
            raise MediaRejected(f"the image has more scans than the limit of {limit}")
        place += int.from_bytes(data[place : place + 2], "big")


def _turned(image: Image.Image) -> Image.Image:
    """As the camera was held. What cannot be read of it is no reason to refuse a picture that can."""
    try:
        orientation = image.getexif().get(_ORIENTATION)
    except Exception:  # whatever a broken directory makes the reader raise
        return image
    turn = _TURNS.get(orientation) if isinstance(orientation, int) else None
    return image if turn is None else image.transpose(turn)


def _on_white(image: Image.Image) -> Image.Image:
    """RGB. Where a pixel is transparent it has a colour too, which nobody is meant to see."""
    if image.mode.startswith("I"):
        return _from_16_bits(image)
    if image.mode in {"RGBA", "LA", "PA"} or "transparency" in image.info:
        image = image if image.mode == "RGBA" else image.convert("RGBA")
        ground = Image.new("RGB", image.size, (_WHITE, _WHITE, _WHITE))
        ground.paste(image, mask=image.getchannel("A"))
        return ground
    return image if image.mode == "RGB" else image.convert("RGB")


def _from_16_bits(image: Image.Image) -> Image.Image:
    """Grey levels of 16 bits, which Pillow would clip at 255."""
    levels = np.asarray(image)
    grey = (levels >> 8).clip(0, _WHITE).astype(np.uint8)
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        grey[levels == transparent] = _WHITE
    return Image.fromarray(grey).convert("RGB")
