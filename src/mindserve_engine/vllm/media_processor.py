"""What vLLM is told of the media of a model: how many kinds, how large, and an item of the largest size, of which it
learns how much memory it needs. Each class goes before the one that vLLM has for the model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from vllm.multimodal.parse import MultiModalDataParser
from vllm.multimodal.processing import BaseMultiModalProcessor, BaseProcessingInfo

from mindserve_engine.media.facts import MediaFacts, read_media
from mindserve_engine.types import MediaItem, MediaKind
from mindserve_engine.vllm.media import MAX_IMAGE_TOKENS, MAX_VIDEO_TOKENS, blank, largest_shape, max_tokens
from mindserve_engine.vllm.media_input import MediaReader


class OurInfo(BaseProcessingInfo):
    """Goes by the files of the model's folder, as the server does."""

    @cached_property
    def facts(self) -> MediaFacts:
        return read_media(Path(self.ctx.model_config.model), self.get_hf_config(), int(os.environ[MAX_IMAGE_TOKENS]))

    @property
    def kinds(self) -> list[MediaKind]:
        return [kind for kind in MediaKind if self.facts.model.token_id(kind) is not None]

    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        return {kind.value: None for kind in self.kinds}

    def get_data_parser(self) -> MultiModalDataParser:
        """Of raw media, which nobody hands over: vLLM's own would ask for a processor."""
        return MultiModalDataParser()

    def get_mm_max_tokens_per_item(self, seq_len: int, mm_counts: Mapping[str, int] | None = None) -> Mapping[str, int]:
        return {kind.value: self.max_tokens(kind, seq_len) for kind in self.kinds}

    def max_tokens(self, kind: MediaKind, seq_len: int) -> int:
        return max_tokens(self.facts.model, kind, min(int(os.environ[MAX_VIDEO_TOKENS]), seq_len))


class OurProcessor(BaseMultiModalProcessor[OurInfo]):
    """Has an example of the largest items; all others come from the server as the model takes them."""

    def get_dummy_mm_inputs(self, mm_counts: Mapping[str, int], *_arguments: Any, **_options: Any) -> Any:
        config = self.info.ctx.model_config
        prompt: list[int] = []
        items: list[MediaItem] = []
        for kind in self.info.kinds:
            for _ in range(mm_counts.get(kind.value, 0)):
                items.append(self._largest(kind, int(config.max_model_len), len(prompt)))
                token_id = self.info.facts.model.token_id(kind)
                assert token_id is not None
                prompt += [token_id] * items[-1].num_tokens + [0]
        are_bytes = normalises_on_device(config)
        reader = MediaReader(self.info.facts, self, dtype=config.dtype, are_bytes=are_bytes)
        try:
            return reader.read(items).prompt(prompt)
        finally:
            reader.close()

    def _largest(self, kind: MediaKind, seq_len: int, start: int) -> MediaItem:
        model = self.info.facts.model
        shape = largest_shape(model, kind, self.info.max_tokens(kind, seq_len))
        return msgspec.structs.replace(blank(model, kind, shape), start=start)


def normalises_on_device(model_config: Any) -> bool:
    """Whether the model takes pixels as bytes (vLLM 0.32 and later)."""
    return bool(getattr(model_config.multimodal_config, "mm_device_do_normalize", False))
