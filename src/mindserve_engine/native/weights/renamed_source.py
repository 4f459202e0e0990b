"""Weights of models that have a language model as a part, by the names it would have alone."""

from __future__ import annotations

import torch
from torch import Tensor

from mindserve_engine.native.weights.quantised import LinearWeight
from mindserve_engine.native.weights.source import WeightSource

PREFIXES = {
    "model.": ("model.language_model.", "language_model.model."),
    "lm_head.": ("language_model.lm_head.",),
    "visual.": ("model.visual.",),
    "audio_tower.": ("model.audio_tower.",),
    "multi_modal_projector.": ("model.multi_modal_projector.",),
}
"""What stands in files of other times for the beginnings of names."""


class RenamedSource:
    """Implements ``WeightSource`` over one in which names may begin in several ways."""

    def __init__(self, inner: WeightSource) -> None:
        self._inner = inner
        self.weights_name = inner.weights_name
        self.rope_divisors = inner.rope_divisors

    def __contains__(self, name: str) -> bool:
        return self._find(name) in self._inner

    def tensor(self, name: str, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        return self._inner.tensor(self._find(name), shape, dtype)

    def linear(self, name: str, shape: tuple[int, int]) -> LinearWeight:
        return self._inner.linear(self._find(name), shape)

    def _find(self, name: str) -> str:
        """The name as it stands in the file; ``name`` itself when nothing like it does."""
        spellings = (other for other in spellings_of(name) if other in self._inner)
        return next(spellings, name)


def spellings_of(name: str) -> list[str]:
    """A name as it is and as it stands in files of other times."""
    others = [
        other + name.removeprefix(prefix)
        for prefix, replacements in PREFIXES.items()
        if name.startswith(prefix)
        for other in replacements
    ]
    return [name, *others]


def plain_name(name: str) -> str:
    """The name that a tensor or layer of the language model would have alone."""
    for prefix, replacements in PREFIXES.items():
        for other in replacements:
            if name.startswith(other):
                return prefix + name.removeprefix(other)
    return name
