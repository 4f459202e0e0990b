"""Rotary position embeddings: cosines and sines by position, for every variant transformers knows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from mindserve_engine.interface import EngineError


class RotaryTable:
    """[positions, D] cosines and sines, in the compute dtype (computed in float32, as transformers does)."""

    def __init__(
        self,
        config: PretrainedConfig,
        *,
        head_dim: int,
        max_positions: int,
        dtype: torch.dtype,
        divisors: Tensor | None = None,
    ) -> None:
        frequencies, scaling = _frequencies(config, head_dim)
        if divisors is not None:
            frequencies = frequencies / divisors
        angles = torch.outer(torch.arange(max_positions, dtype=torch.float32), frequencies).repeat(1, 2)
        self._cos = (angles.cos() * scaling).to(dtype)
        self._sin = (angles.sin() * scaling).to(dtype)

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """[T] -> two of [T, D]."""
        return self._cos[positions], self._sin[positions]


def rope_type(config: PretrainedConfig) -> str:
    """The variant's name; "default" for plain rotary embeddings."""
    parameters: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    return str(parameters.get("rope_type", "default"))


def longest_context(config: PretrainedConfig) -> int | None:
    """Positions up to which one set of frequencies holds; ``None`` when the config names no limit.

    "dynamic" changes its frequencies beyond ``max_position_embeddings`` and "longrope" beyond the length of its first
    training: keys in the cache, and the neighbours in the batch, would no longer fit the new ones."""
    limit: int | None = getattr(config, "max_position_embeddings", None)
    if rope_type(config) == "longrope":
        limit = config.rope_parameters.get("original_max_position_embeddings") or limit
    return int(limit) if limit else None


def _frequencies(config: PretrainedConfig, head_dim: int) -> tuple[Tensor, float]:
    kind = rope_type(config)
    if kind == "default":
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        return 1.0 / (config.rope_parameters["rope_theta"] ** exponents), 1.0
    if kind not in ROPE_INIT_FUNCTIONS:
        raise EngineError(f"rope_type '{kind}' of the model's config is not known")
    frequencies, scaling = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    return frequencies.to(torch.float32), float(scaling)
