"""What a model's files say of the media it takes: config.json, and how its processor makes pixels and samples ready."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec
from transformers import PretrainedConfig

from mindserve_engine.first_line import first_line
from mindserve_engine.first_look import (
    PROCESSOR,
    USES,
    VIDEO_PROCESSOR,
    WHOLE_PROCESSOR,
    read_object,
    require_processor,
)
from mindserve_engine.interface import EngineError
from mindserve_engine.media.patches import Normalisation, PatchShape
from mindserve_engine.media.positions import PositionRule
from mindserve_engine.options import MAX_IMAGE_TOKENS
from mindserve_engine.types import MediaModel

_MAX_CHUNK_S: Final = 600


@dataclass(frozen=True, slots=True)
class MediaFacts:
    """Of a family in ``FAMILIES``."""

    config: PretrainedConfig
    """The whole model's."""
    model: MediaModel
    processor: dict[str, Any]
    rule: PositionRule | None = None
    patches: PatchShape | None = None
    normalisation: Normalisation | None = None


def takes_media(config: PretrainedConfig) -> bool:
    """Whether the family is one whose media are known here."""
    return config.model_type in _READERS


def read_media(folder: Path, config: PretrainedConfig, max_image_tokens: int = MAX_IMAGE_TOKENS) -> MediaFacts:
    """``max_image_tokens`` bounds what the files allow: published ones allow 16,384, minutes of work on a CPU.

    Raises ``EngineError`` with one line that names the file which is missing or cannot be used."""
    reader, part = _READERS[config.model_type]
    place, processor = _processor(folder, part, config.model_type)
    try:
        facts = _bounded(reader(config, processor), max_image_tokens)
        place = folder / VIDEO_PROCESSOR
        if facts.patches is not None and place.is_file():
            _check_video(facts, reader(config, {**processor, **read_object(place)}))
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        reason = f"no '{error.args[0]}'" if isinstance(error, KeyError) else first_line(error)
        raise EngineError(f"{place}: not usable for a {config.model_type} model ({reason})") from error
    return facts


def _bounded(facts: MediaFacts, max_tokens: int) -> MediaFacts:
    model = facts.model
    max_pixels = min(model.max_pixels, max_tokens * (model.patch_size * model.merge_size) ** 2)
    return replace(facts, model=msgspec.structs.replace(model, max_pixels=max_pixels))


def _check_video(facts: MediaFacts, video: MediaFacts) -> None:
    """Frames become as large as ``maxVideoTokens`` says, not as their processor has it; all else is as for images."""
    if video.normalisation != facts.normalisation:
        raise ValueError(f"its frames are normalised by {video.normalisation}, images by {facts.normalisation}")


def _processor(folder: Path, part: str, model_type: str) -> tuple[Path, dict[str, Any]]:
    require_processor(folder, model_type)
    own, whole = folder / PROCESSOR, folder / WHOLE_PROCESSOR
    if own.is_file():
        return own, read_object(own)
    content = read_object(whole).get(part)
    if not isinstance(content, dict):
        raise EngineError(
            f"{whole}: has no {part}, and there is no {PROCESSOR}; a {model_type} model {USES[model_type]}"
        )
    return whole, content


def _read_vision(config: PretrainedConfig, processor: dict[str, Any]) -> MediaFacts:
    vision = config.vision_config
    shape = PatchShape(vision.patch_size, vision.spatial_merge_size, vision.temporal_patch_size)
    told = PatchShape(
        int(processor.get("patch_size", shape.size)),
        int(processor.get("merge_size", shape.merge)),
        int(processor.get("temporal_patch_size", shape.frames)),
    )
    if told != shape:
        raise ValueError(f"its patches are {told}, those of config.json {shape}")
    side = shape.size * shape.merge
    size = processor.get("size") or {}
    model = MediaModel(
        image_token_id=config.image_token_id,
        video_token_id=config.video_token_id,
        patch_size=shape.size,
        merge_size=shape.merge,
        frames_per_patch=shape.frames,
        min_pixels=int(processor.get("min_pixels") or size["shortest_edge"]),
        max_pixels=int(processor.get("max_pixels") or size["longest_edge"]),
    )
    normalisation = Normalisation(
        scale=float(processor.get("rescale_factor", 1 / 255)),
        mean=_colours(processor["image_mean"]),
        deviation=_colours(processor["image_std"]),
    )
    rule = PositionRule(
        pixels_per_token=side,
        frames_per_step=shape.frames,
        tokens_per_second=getattr(vision, "tokens_per_second", None),
    )
    return MediaFacts(config, model, processor, rule, shape, normalisation)


def _colours(values: Any) -> tuple[float, ...]:
    numbers = tuple(float(value) for value in values)
    if len(numbers) != 3:
        raise ValueError(f"image_mean and image_std must have 3 numbers, not {len(numbers)}")
    return numbers


def _read_audio(config: PretrainedConfig, processor: dict[str, Any]) -> MediaFacts:
    rate, hop, seconds = (int(processor[name]) for name in ("sampling_rate", "hop_length", "chunk_length"))
    if not 0 < seconds <= _MAX_CHUNK_S or rate < 1 or hop < 1:
        raise ValueError(f"sampling_rate {rate}, hop_length {hop} and chunk_length {seconds} cannot be computed with")
    num_frames, wanted = rate * seconds // hop, 2 * config.audio_config.max_source_positions
    if num_frames != wanted:
        raise ValueError(f"{seconds} s give {num_frames} frames, the tower of config.json takes {wanted}")
    if int(processor["feature_size"]) != config.audio_config.num_mel_bins:
        raise ValueError(f"feature_size {processor['feature_size']} is not num_mel_bins of config.json")
    model = MediaModel(
        audio_token_id=config.audio_token_id,
        sample_rate=rate,
        samples_per_frame=hop,
        max_samples=rate * seconds,
    )
    return MediaFacts(config, model, processor)


_Reader = Callable[[PretrainedConfig, dict[str, Any]], MediaFacts]

_READERS: Final[dict[str, tuple[_Reader, str]]] = {
    "qwen2_vl": (_read_vision, "image_processor"),
    "qwen2_5_vl": (_read_vision, "image_processor"),
    "qwen2_audio": (_read_audio, "feature_extractor"),
}
"""By model type: how its files are read, and which part of a processor is its."""
