"""Prompts with media for tests of the engine: items as the server would make them, and what transformers is given."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import torch

from mindserve_engine.media.positions import PositionRule
from mindserve_engine.types import MediaItem, MediaKind, MediaModel
from tests import tiny_media_models as tiny

SIDE = 28
"""Pixels of a token."""


def picture(rows: int, columns: int, *, seed: int = 0) -> np.ndarray:
    """Random pixels of so many tokens."""
    return np.random.default_rng(seed).integers(0, 256, (rows * SIDE, columns * SIDE, 3), np.uint8)


def film(frames: int, rows: int, columns: int, *, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (frames, rows * SIDE, columns * SIDE, 3), np.uint8)


def sound(samples: int, *, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.1, samples).astype(np.float32)


def item(values: np.ndarray, model: MediaModel, *, seconds_per_frame: float = 0.0) -> MediaItem:
    """An item that has no place yet; its kind is told by its shape."""
    kind = {1: MediaKind.AUDIO, 3: MediaKind.IMAGE, 4: MediaKind.VIDEO}[values.ndim]
    described = f"{kind} {values.shape} {seconds_per_frame}".encode()
    return MediaItem(
        kind=kind,
        start=0,
        num_tokens=model.num_tokens(kind, values.shape),
        shape=values.shape,
        data=values.tobytes(),
        digest=hashlib.sha256(described + values.tobytes()).digest(),
        seconds_per_frame=seconds_per_frame,
    )


@dataclass
class Prompt:
    """Text and media in order."""

    token_ids: list[int]
    media: tuple[MediaItem, ...]


_AROUND = {
    MediaKind.IMAGE: (tiny.VISION_START, tiny.VISION_END),
    MediaKind.VIDEO: (tiny.VISION_START, tiny.VISION_END),
    MediaKind.AUDIO: (tiny.AUDIO_START, tiny.AUDIO_END),
}


def prompt(model: MediaModel, *parts: str | MediaItem) -> Prompt:
    token_ids: list[int] = []
    media = []
    for part in parts:
        if isinstance(part, str):
            token_ids += part.encode()
            continue
        before, after = _AROUND[part.kind]
        placeholder = model.token_id(part.kind)
        assert placeholder is not None
        media.append(msgspec.structs.replace(part, start=len(token_ids) + 1))
        token_ids += [before, *[placeholder] * part.num_tokens, after]
    return Prompt(token_ids, tuple(media))


def values_of(item: MediaItem) -> np.ndarray:
    kind = np.float32 if item.kind is MediaKind.AUDIO else np.uint8
    return np.frombuffer(item.data, kind).reshape(item.shape)


def grid(item: MediaItem) -> list[int]:
    frames = item.shape[0] if item.kind is MediaKind.VIDEO else 1
    return [-(-frames // 2), item.shape[-3] // 14, item.shape[-2] // 14]


def arguments(name: str, prompt: Prompt) -> dict[str, Any]:
    """What transformers' model of that name takes for the prompt, made by transformers' processors where they can be
    had: videos need torchvision, so their patches are put together here."""
    ids = torch.tensor([prompt.token_ids])
    given: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    by_kind = {kind: [one for one in prompt.media if one.kind is kind] for kind in MediaKind}
    if by_kind[MediaKind.IMAGE] or by_kind[MediaKind.VIDEO]:
        given["mm_token_type_ids"] = token_types(prompt)
    if by_kind[MediaKind.IMAGE]:
        images = [values_of(one) for one in by_kind[MediaKind.IMAGE]]
        given |= tiny.processor(name)(images=images, do_resize=False, return_tensors="pt")
    if by_kind[MediaKind.VIDEO]:
        videos = by_kind[MediaKind.VIDEO]
        given["pixel_values_videos"] = torch.cat([torch.from_numpy(video_patches(values_of(one))) for one in videos])
        given["video_grid_thw"] = torch.tensor([grid(one) for one in videos])
        if name == "qwen2_5_vl":
            given["second_per_grid_ts"] = torch.tensor([one.seconds_per_frame * 2 for one in videos])
    if by_kind[MediaKind.AUDIO]:
        sounds = [values_of(one) for one in by_kind[MediaKind.AUDIO]]
        features = tiny.processor(name)(
            sounds, sampling_rate=16000, padding="max_length", return_attention_mask=True, return_tensors="pt"
        )
        given |= {"input_features": features.input_features, "feature_attention_mask": features.attention_mask}
    return given


def token_types(prompt: Prompt) -> torch.Tensor:
    """[1, n]: 0 text, 1 image, 2 video."""
    types = torch.zeros(1, len(prompt.token_ids), dtype=torch.int64)
    for one in prompt.media:
        types[0, one.start : one.start + one.num_tokens] = 1 if one.kind is MediaKind.IMAGE else 2
    return types


def video_patches(frames: np.ndarray) -> np.ndarray:
    """[patches, 1176] as transformers' video processor has them."""
    from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD

    if len(frames) % 2:
        frames = np.concatenate([frames, frames[-1:]])
    mean, deviation = (torch.tensor(values) * (1.0 / (1 / 255)) for values in (OPENAI_CLIP_MEAN, OPENAI_CLIP_STD))
    pixels = torch.from_numpy(frames.copy()).permute(0, 3, 1, 2).float()
    pixels = pixels.sub_(mean[:, None, None]).div_(deviation[:, None, None])
    steps, height, width = len(frames) // 2, frames.shape[1] // 14, frames.shape[2] // 14
    cut = pixels.numpy().reshape(steps, 2, 3, height // 2, 2, 14, width // 2, 2, 14)
    return np.ascontiguousarray(cut.transpose(0, 3, 6, 4, 7, 2, 1, 5, 8)).reshape(steps * height * width, -1)


def rule(name: str, *, is_by_side: bool = False) -> PositionRule:
    """How the tiny model of that name counts."""
    per_second = tiny.TOKENS_PER_SECOND if name == "qwen2_5_vl" else None
    return PositionRule(SIDE, 2, per_second, is_by_side)
