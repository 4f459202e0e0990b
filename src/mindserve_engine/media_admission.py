"""What is checked of a request's media before it is taken: shapes, counts, and where the placeholders stand."""

from __future__ import annotations

import math
from typing import Final

from mindserve_engine.interface import EngineUnavailable, RequestInvalid
from mindserve_engine.types import EngineInfo, GenerationRequest, MediaItem, MediaKind, MediaModel

_NUM_DIMENSIONS: Final = {MediaKind.IMAGE: 3, MediaKind.VIDEO: 4, MediaKind.AUDIO: 1}
_LAYOUT: Final = {
    MediaKind.IMAGE: "(height, width, 3)",
    MediaKind.VIDEO: "(frames, height, width, 3)",
    MediaKind.AUDIO: "(samples,)",
}
_SAMPLE_BYTES: Final = 4
_COLOURS: Final = 3
_DIGEST_BYTES: Final = 32
_MAX_SECONDS_PER_FRAME: Final = 86_400.0


def check_media(request: GenerationRequest, info: EngineInfo) -> None:
    """Raise ``RequestInvalid`` naming ``media[k]``, or ``media`` where placeholders lack their item."""
    if info.media is None:
        if request.media:
            raise RequestInvalid(field="media", reason="is given, but this model takes text alone")
        return
    end = 0
    for number, item in enumerate(request.media):
        field = f"media[{number}]"
        _check_shape(field, item, info.media)
        _check_place(field, item, info.media, request.prompt_token_ids, after=end)
        end = item.start + item.num_tokens
    _check_all_filled(request, info.media)


def check_media_room(wanted: int, *, in_flight: int, limit: int) -> None:
    """In bytes of pixels and samples. Raise ``RequestInvalid`` for more than there ever is room for, and
    ``EngineUnavailable`` for what must wait for the media of other requests."""
    if wanted > limit:
        reason = f"have {wanted} bytes of pixels and samples together, the engine holds at most {limit}"
        raise RequestInvalid(field="media", reason=reason)
    if wanted and in_flight + wanted > limit:
        raise EngineUnavailable(f"the media of other requests take {in_flight} of {limit} bytes")


def _check_shape(field: str, item: MediaItem, model: MediaModel) -> None:
    if model.token_id(item.kind) is None:
        kinds = ", ".join(kind for kind in MediaKind if model.token_id(kind) is not None)
        raise RequestInvalid(field=field, reason=f"is of kind {item.kind}, this model takes: {kinds}")
    is_complete = len(item.shape) == _NUM_DIMENSIONS[item.kind] and min(item.shape) >= 1
    if not is_complete or (item.kind is not MediaKind.AUDIO and item.shape[-1] != _COLOURS):
        reason = f"has the shape {item.shape}, of kind {item.kind} it must be {_LAYOUT[item.kind]}"
        raise RequestInvalid(field=field, reason=reason)
    num_bytes = math.prod(item.shape) * (_SAMPLE_BYTES if item.kind is MediaKind.AUDIO else 1)
    if len(item.data) != num_bytes:
        reason = f"has {len(item.data)} bytes of data, its shape {item.shape} needs {num_bytes}"
        raise RequestInvalid(field=field, reason=reason)
    if len(item.digest) != _DIGEST_BYTES:
        reason = f"has a digest of {len(item.digest)} bytes, SHA-256 has {_DIGEST_BYTES}"
        raise RequestInvalid(field=field, reason=reason)
    if item.kind is MediaKind.AUDIO:
        _check_samples(field, item, model)
    else:
        _check_pixels(field, item, model)


def _check_samples(field: str, item: MediaItem, model: MediaModel) -> None:
    if item.shape[0] > model.max_samples:
        raise RequestInvalid(field=field, reason=f"has {item.shape[0]} samples, the model takes {model.max_samples}")


def _check_pixels(field: str, item: MediaItem, model: MediaModel) -> None:
    height, width = item.shape[-3:-1]
    side = model.patch_size * model.merge_size
    if height % side or width % side:
        raise RequestInvalid(field=field, reason=f"is {height} x {width} pixels, both must be multiples of {side}")
    # what is long and very thin cannot be made smaller than one token across
    if height * width > model.max_pixels and min(height, width) > side:
        reason = f"has {height * width} pixels, the model takes {model.max_pixels}"
        raise RequestInvalid(field=field, reason=reason)
    if not 0 <= item.seconds_per_frame <= _MAX_SECONDS_PER_FRAME:
        reason = f"has {item.seconds_per_frame} s between frames, must lie in 0..{_MAX_SECONDS_PER_FRAME:g}"
        raise RequestInvalid(field=field, reason=reason)


def _check_place(field: str, item: MediaItem, model: MediaModel, prompt: list[int], *, after: int) -> None:
    expected = model.num_tokens(item.kind, item.shape)
    if item.num_tokens != expected or expected < 1:
        reason = f"has {item.num_tokens} tokens, its shape {item.shape} gives {expected}, at least 1 is needed"
        raise RequestInvalid(field=field, reason=reason)
    if item.start < after:
        raise RequestInvalid(field=field, reason=f"starts at {item.start}, the item before it ends at {after}")
    end, placeholder = item.start + item.num_tokens, model.token_id(item.kind)
    if end > len(prompt):
        raise RequestInvalid(field=field, reason=f"ends at {end}, the prompt at {len(prompt)}")
    wrong = next((at for at in range(item.start, end) if prompt[at] != placeholder), None)
    if wrong is not None:
        reason = f"needs its placeholder {placeholder} at {item.start}..{end - 1}, at {wrong} stands {prompt[wrong]}"
        raise RequestInvalid(field=field, reason=reason)


def _check_all_filled(request: GenerationRequest, model: MediaModel) -> None:
    for kind in MediaKind:
        placeholder = model.token_id(kind)
        if placeholder is None:
            continue
        num_filled = sum(item.num_tokens for item in request.media if item.kind is kind)
        num_there = request.prompt_token_ids.count(placeholder)
        if num_there != num_filled:
            reason = f"fills {num_filled} placeholders of kind {kind}, the prompt has {num_there}"
            raise RequestInvalid(field="media", reason=reason)
