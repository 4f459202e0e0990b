"""Which media a model takes on vLLM, and how many of what size: pure, and free of vllm."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mindserve_engine.first_look import CONFIG, read_object
from mindserve_engine.interface import EngineError, RequestInvalid
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import GenerationRequest, MediaItem, MediaKind, MediaModel

if TYPE_CHECKING:
    from mindserve_engine.media.facts import MediaFacts  # it imports torch

KINDS: Final[Mapping[str, tuple[MediaKind, ...]]] = {
    "qwen2_vl": (MediaKind.IMAGE, MediaKind.VIDEO),
    "qwen2_5_vl": (MediaKind.IMAGE, MediaKind.VIDEO),
    "qwen2_audio": (MediaKind.AUDIO,),
}
"""By model type; vLLM calls them by the same names."""
FAMILY: Final = "MINDSERVE_VLLM_FAMILY"
MAX_IMAGE_TOKENS: Final = "MINDSERVE_VLLM_MAX_IMAGE_TOKENS"
MAX_VIDEO_TOKENS: Final = "MINDSERVE_VLLM_MAX_VIDEO_TOKENS"
"""By these variables vLLM's processes, on any machine, know what ``plugin`` is to do there."""
PLUGINS: Final = "vllm.general_plugins"
"""The group in which vLLM looks for what its processes load."""
OWN_PLUGIN: Final = "mindserve"
_ALLOWED_PLUGINS: Final = "VLLM_PLUGINS"
FRAMES: Final = 3000
"""Of recordings: 30 s in hundredths, as Qwen2-Audio was published."""
_FEW_FRAMES: Final = 16
_NEEDS_PLUGIN: Final = f"media on vLLM need its plug-in {OWN_PLUGIN}"


def family(folder: Path) -> str | None:
    """The model type, where it is one whose media are known. Raises ``EngineError``."""
    model_type = read_object(folder / CONFIG).get("model_type")
    return model_type if model_type in KINDS else None


def media_arguments(options: EngineOptions) -> dict[str, Any]:
    """Arguments by the names of vLLM's EngineArgs; none for other models. Raises ``EngineError``."""
    found = family(options.model_path)
    if found is None:
        return {}
    return {
        "limit_mm_per_prompt": dict.fromkeys(KINDS[found], options.max_media_items),
        "mm_processor_cache_gb": 0,  # of pixels that vLLM made ready: here they are when they reach it
    }


def set_media_environment(options: EngineOptions, environ: MutableMapping[str, str]) -> None:
    """Before vLLM's processes start. Raises ``EngineError`` when they would not load ``plugin``."""
    environ.pop(FAMILY, None)
    found = family(options.model_path)
    if found is None:
        return
    environ[FAMILY] = found
    environ[MAX_IMAGE_TOKENS] = str(options.max_image_tokens)
    environ[MAX_VIDEO_TOKENS] = str(options.max_video_tokens)
    if not entry_points(group=PLUGINS, name=OWN_PLUGIN):
        raise EngineError(f"{_NEEDS_PLUGIN}, which this installation of mindserve does not name: install it again")
    allowed = environ.get(_ALLOWED_PLUGINS)
    if allowed is not None and OWN_PLUGIN not in allowed.split(","):
        raise EngineError(f"{_NEEDS_PLUGIN}, which {_ALLOWED_PLUGINS} leaves out: add {OWN_PLUGIN} to it")


def max_tokens(model: MediaModel, kind: MediaKind, video_tokens: int) -> int:
    """Of the largest item of a kind, when no video has more than ``video_tokens``."""
    if kind is MediaKind.AUDIO:
        return model.num_tokens(kind, (model.max_samples,))
    if kind is MediaKind.VIDEO:
        return video_tokens
    return max(1, model.max_pixels // (model.patch_size * model.merge_size) ** 2)


def largest_shape(model: MediaModel, kind: MediaKind, num_tokens: int) -> tuple[int, ...]:
    """Of an item of a kind with that many tokens, or a little less."""
    if kind is MediaKind.AUDIO:
        return (model.max_samples,)
    num_steps = -(-num_tokens // max_tokens(model, MediaKind.IMAGE, num_tokens)) if kind is MediaKind.VIDEO else 1
    side, num_of_step = model.patch_size * model.merge_size, num_tokens // num_steps
    rows = max(1, math.isqrt(num_of_step))
    frame = (rows * side, max(1, num_of_step // rows) * side, 3)
    return frame if kind is MediaKind.IMAGE else (num_steps * model.frames_per_patch, *frame)


def smallest_prompts(model: MediaModel) -> list[tuple[list[int], MediaItem]]:
    """A prompt with one item for each kind that the model takes."""
    side = 2 * model.patch_size * model.merge_size
    shapes = {
        MediaKind.IMAGE: (side, side, 3),
        MediaKind.VIDEO: (model.frames_per_patch, side, side, 3),
        MediaKind.AUDIO: (min(model.max_samples, _FEW_FRAMES * model.samples_per_frame),),
    }
    prompts = []
    for kind, shape in shapes.items():
        token_id = model.token_id(kind)
        if token_id is not None:
            item = blank(model, kind, shape)
            prompts.append(([token_id] * item.num_tokens + [0], item))
    return prompts


def blank(model: MediaModel, kind: MediaKind, shape: tuple[int, ...]) -> MediaItem:
    """An item of nothing, at the start of a prompt."""
    size = math.prod(shape) * (4 if kind is MediaKind.AUDIO else 1)
    return MediaItem(
        kind=kind,
        start=0,
        num_tokens=model.num_tokens(kind, shape),
        shape=shape,
        data=bytes(size),
        digest=bytes(31) + bytes([list(MediaKind).index(kind)]),
        seconds_per_frame=1.0,
    )


@dataclass(frozen=True, slots=True)
class TakenMedia:
    """What a model that runs takes."""

    facts: MediaFacts
    model: MediaModel
    """Without the kinds of which vLLM was told to take none."""
    limits: Mapping[MediaKind, int]
    """Items of each kind in one prompt."""
    max_item_tokens: int
    """vLLM has room for so many embeddings of one item."""


def taken(
    facts: MediaFacts, limits: Mapping[MediaKind, int], *, encoder_tokens: int, video_tokens: int
) -> TakenMedia | None:
    """``None``: no kind is left. ``encoder_tokens``: for which vLLM has room whatever the model takes.

    Raises ``EngineError`` for a model whose media vLLM cannot compute."""
    kinds = [kind for kind in MediaKind if limits.get(kind) and facts.model.token_id(kind) is not None]
    if not kinds:
        return None
    if MediaKind.AUDIO in kinds and (num_frames := facts.model.max_samples // facts.model.samples_per_frame) != FRAMES:
        raise EngineError(f"vLLM takes recordings of {FRAMES} frames alone, those of this model have {num_frames}")
    ids = {f"{kind}_token_id": facts.model.token_id(kind) if kind in kinds else None for kind in MediaKind}
    most = max(encoder_tokens, *(max_tokens(facts.model, kind, video_tokens) for kind in kinds))
    return TakenMedia(facts, msgspec.structs.replace(facts.model, **ids), limits, most)


def check_items(request: GenerationRequest, media: TakenMedia) -> None:
    """Raise ``RequestInvalid`` for more or larger items than vLLM was set up for."""
    for kind, number in Counter(item.kind for item in request.media).items():
        if number > media.limits[kind]:
            reason = f"are {number} of kind {kind}, vLLM takes at most {media.limits[kind]} (limit_mm_per_prompt)"
            raise RequestInvalid(field="media", reason=reason)
    for number, item in enumerate(request.media):
        if item.num_tokens > media.max_item_tokens:
            reason = f"has {item.num_tokens} tokens, vLLM has room for {media.max_item_tokens} of one item"
            raise RequestInvalid(field=f"media[{number}]", reason=reason)
