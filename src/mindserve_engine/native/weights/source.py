"""Where a model's tensors come from, whatever the file format."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from mindserve_engine.interface import EngineError
from mindserve_engine.native.weights.quantised import LinearWeight


class WeightSource(Protocol):
    """Tensors by the names transformers gives them ("model.layers.0.self_attn.q_proj.weight")."""

    weights_name: str
    """How linear weights are held: "int4", "bfloat16", "float32", "float16"."""

    rope_divisors: Tensor | None
    """[D / 2] by which the rotary frequencies are divided, where the file has the rope scaling in this form."""

    def __contains__(self, name: str) -> bool: ...

    def tensor(self, name: str, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        """The tensor in ``dtype``, or in the type weights are held in. Raises ``EngineError`` when it is missing or has
        another shape."""

    def linear(self, name: str, shape: tuple[int, int]) -> LinearWeight:
        """The matrix of a linear layer [out, in] or of the embedding [vocabulary, hidden], quantised where the file has
        it so and the dtype asked for allows."""


def missing(name: str, place: object) -> EngineError:
    return EngineError(f"{place}: the weights have no tensor '{name}'")


def require_shape(name: str, actual: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if tuple(actual) != tuple(expected):
        raise EngineError(f"tensor '{name}' has shape {list(actual)}, the model's config needs {list(expected)}")


DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
"""The names of ``EngineOptions.dtype`` that name a floating-point type."""
