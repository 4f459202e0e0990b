"""Rotary position embeddings: cosines and sines by position, for every variant transformers knows."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor
from transformers import PretrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from mindserve_engine.interface import EngineError

INTERPOLATION: Final = "interpolation"
"""Key of ``rope_parameters`` in our own configs: positions are divided by it."""


class RotaryTable:
    """[positions, D] cosines and sines, in the compute dtype (computed in float32, as transformers does)."""

    def __init__(
        self,
        config: PretrainedConfig,
        *,
        head_dim: int,
        max_positions: int,
        dtype: torch.dtype,
        device: torch.device,
        divisors: Tensor | None = None,
    ) -> None:
        frequencies, self._scaling = _frequencies(config, head_dim)
        self._frequencies = frequencies if divisors is None else frequencies / divisors
        self._dtype = dtype
        cos, sin = self._turn(torch.arange(max_positions, dtype=torch.float32)[:, None])
        self._cos, self._sin = cos.to(device), sin.to(device)
        self._coordinate = _coordinates(config, head_dim)

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """[T], or [3, T] of M-RoPE -> two of [T, D]."""
        if positions.dim() == 1:
            return self._cos[positions], self._sin[positions]
        by_angle = positions[self._coordinate].T
        known, columns = by_angle.clamp(max=len(self._cos) - 1), torch.arange(by_angle.shape[1])
        cos, sin = self._cos[known, columns], self._sin[known, columns]
        far = (by_angle >= len(self._cos)).any(dim=1)  # the times of a long video count faster than tokens
        if far.any():
            half = by_angle[far, : by_angle.shape[1] // 2]
            cos[far], sin[far] = self._turn(half.to(torch.float32))
        return cos, sin

    def _turn(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """[T, 1], or one for each angle [T, D / 2] -> two of [T, D]."""
        angles = (positions * self._frequencies).repeat(1, 2)
        return (angles.cos() * self._scaling).to(self._dtype), (angles.sin() * self._scaling).to(self._dtype)


def _coordinates(config: PretrainedConfig, head_dim: int) -> Tensor:
    """[D] which of the three coordinates turns each angle: M-RoPE gives each a section of the frequencies."""
    parameters: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    sections = parameters.get("mrope_section") or (head_dim // 2,)
    coordinates = [number % 3 for number, length in enumerate(sections) for _ in range(length)]
    if len(coordinates) * 2 != head_dim:
        raise EngineError(f"mrope_section {list(sections)} of the model's config does not fit heads of {head_dim}")
    return torch.tensor(coordinates * 2)


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
        turned = int(head_dim * config.rope_parameters.get("partial_rotary_factor", 1.0))
        exponents = torch.arange(0, turned, 2, dtype=torch.float32) / turned
        frequencies = 1.0 / (config.rope_parameters["rope_theta"] ** exponents)
        frequencies /= config.rope_parameters.get(INTERPOLATION, 1.0)
        return torch.nn.functional.pad(frequencies, (0, (head_dim - turned) // 2)), 1.0  # 0 turns nothing
    if kind not in ROPE_INIT_FUNCTIONS:
        raise EngineError(f"rope_type '{kind}' of the model's config is not known")
    frequencies, scaling = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    return frequencies.to(torch.float32), float(scaling)
