"""From items as the server made them to what vLLM's models take. No processor of vLLM's or transformers' resizes,
counts or places anything: sizes, counts and places are those of the request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from transformers import BatchFeature, WhisperFeatureExtractor
from vllm.inputs import mm_input
from vllm.multimodal.inputs import MultiModalKwargsItems, PlaceholderRange

from mindserve_engine.interface import GenerationFailed
from mindserve_engine.media.facts import MediaFacts
from mindserve_engine.media.patches import Patches
from mindserve_engine.types import MediaItem, MediaKind

_PIXELS: Final = {MediaKind.IMAGE: "pixel_values", MediaKind.VIDEO: "pixel_values_videos"}


@dataclass(frozen=True, slots=True)
class ReadyMedia:
    """The items of one prompt, by kind."""

    kwargs: Any
    """vLLM's ``MultiModalKwargsItems``."""
    digests: dict[str, list[str]]
    """By which vLLM knows items that are equal."""
    places: dict[str, list[PlaceholderRange]]

    def prompt(self, token_ids: list[int]) -> Any:
        """vLLM's input: the items, and the prompt with their placeholders."""
        return mm_input(token_ids, self.kwargs, self.digests, self.places)


class MediaReader:
    """Makes items ready, one prompt at a time, beside the event loop."""

    def __init__(self, facts: MediaFacts, processor: Any, *, dtype: torch.dtype, are_bytes: bool) -> None:
        """``processor``: vLLM's for the model, which knows how its fields are laid out. ``dtype``: the model's.
        ``are_bytes``: vLLM normalises pixels on the device."""
        self._facts, self._processor = facts, processor
        self._dtype, self._are_bytes = dtype, are_bytes
        self._extractor = None if facts.patches else WhisperFeatureExtractor(**facts.processor)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="vllm-media")

    def start(self, items: Sequence[MediaItem]) -> asyncio.Future[ReadyMedia]:
        """Several may wait for it, and may leave; then shield it."""
        reading = asyncio.get_running_loop().run_in_executor(self._thread, self.read, items)
        reading.add_done_callback(lambda done: done.cancelled() or done.exception())  # those who waited may be gone
        return reading

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def read(self, items: Sequence[MediaItem]) -> ReadyMedia:
        """Blocking. Raises ``GenerationFailed`` when the numbers would not fill the placeholders."""
        by_kind = {kind: [item for item in items if item.kind is kind] for kind in MediaKind}
        data: dict[str, torch.Tensor] = {}
        for kind, some in by_kind.items():
            if some:
                data |= self._sounds(some) if kind is MediaKind.AUDIO else self._pictures(kind, some)
        inputs = BatchFeature(data)
        fields = self._processor._get_mm_fields_config(inputs, {})
        return ReadyMedia(
            kwargs=MultiModalKwargsItems.from_hf_inputs(inputs, fields),
            digests={kind.value: [item.digest.hex() for item in some] for kind, some in by_kind.items() if some},
            places={
                kind.value: [PlaceholderRange(offset=item.start, length=item.num_tokens) for item in some]
                for kind, some in by_kind.items()
                if some
            },
        )

    def _pictures(self, kind: MediaKind, items: list[MediaItem]) -> dict[str, torch.Tensor]:
        """Images or videos: their patches, one below the other, and the grid of each."""
        shape, rule = self._facts.patches, self._facts.rule
        assert shape is not None
        assert rule is not None
        patches = [Patches(item, shape, None if self._are_bytes else self._facts.normalisation) for item in items]
        grids = [(one.num_steps, one.height, one.width) for one in patches]
        for item, (steps, height, width) in zip(items, grids, strict=True):
            _check(item, steps * height * width // shape.merge**2)
        num_rows = sum(steps * height * width for steps, height, width in grids)
        values = torch.empty((num_rows, shape.values), dtype=torch.uint8 if self._are_bytes else self._dtype)
        at = 0
        bands = (band for one in patches for step in range(one.num_steps) for band in one.bands(step))
        for band in bands:
            values[at : at + len(band)] = torch.from_numpy(band)
            at += len(band)
        data = {_PIXELS[kind]: values, f"{kind}_grid_thw": torch.tensor(grids)}
        if kind is MediaKind.VIDEO and rule.tokens_per_second is not None:
            seconds = [item.seconds_per_frame * rule.frames_per_step for item in items]
            data["second_per_grid_ts"] = torch.tensor(seconds)
        return data

    def _sounds(self, items: list[MediaItem]) -> dict[str, torch.Tensor]:
        assert self._extractor is not None
        features = self._extractor(
            [np.frombuffer(item.data, np.float32) for item in items],
            sampling_rate=self._extractor.sampling_rate,
            padding="max_length",
            return_attention_mask=True,
            return_tensors="pt",
        )
        mask = features["attention_mask"]
        for item, num_frames in zip(items, mask.sum(-1).tolist(), strict=True):
            _check(item, (num_frames + 1) // 2 // 2)
        return {"input_features": features["input_features"].to(self._dtype), "feature_attention_mask": mask}


def _check(item: MediaItem, num_tokens: int) -> None:
    if num_tokens != item.num_tokens:
        raise GenerationFailed(f"an item of kind {item.kind} makes {num_tokens} tokens, not {item.num_tokens}")
