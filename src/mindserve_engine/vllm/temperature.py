"""Temperatures that vLLM's own parameters cannot say, as a logits processor that runs in its workers."""

from __future__ import annotations

from typing import Any, Final

import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from mindserve_engine.vllm.params import TEMPERATURE_KEY

PLACE: Final = f"{__name__}:TemperatureOutside"
"""As vLLM's setting ``logits_processors`` names it."""
_LEAST, _MOST = 1e-30, 1e30
"""Of a factor, so that none becomes zero or infinite in float32; beyond them all draws are the same."""


class TemperatureOutside(LogitsProcessor):
    """Divides by what is left of a temperature after vLLM has divided by the part that it takes."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._device = device
        self._factors: dict[int, float] = {}
        """By row of the batch."""

    def is_argmax_invariant(self) -> bool:
        """So it runs after vLLM's division, before top-k and top-p."""
        return True

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(self._factors, batch_update, lambda params, _prompt, _output: _factor(params))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """``logits`` [rows, vocabulary], changed in place."""
        if self._factors:
            rows = torch.tensor(list(self._factors), device=self._device)
            factors = torch.tensor(list(self._factors.values()), device=self._device, dtype=logits.dtype)
            chosen = logits[rows]
            logits[rows] = (chosen - chosen.amax(dim=-1, keepdim=True)) * factors.unsqueeze(1)
        return logits


def _factor(params: SamplingParams) -> float | None:
    wanted = (params.extra_args or {}).get(TEMPERATURE_KEY)
    return None if wanted is None else min(max(params.temperature / wanted, _LEAST), _MOST)
