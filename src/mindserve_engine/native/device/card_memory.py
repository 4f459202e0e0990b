"""How much of a card's memory keys and values may have: what CUDA and NPU count alike.

A card's own figures are those of all its users, so what this process takes beside torch is a difference."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

import torch

from mindserve_engine.interface import EngineError
from mindserve_engine.native.device.base import Memory
from mindserve_engine.native.kv_memory import CacheRoom

_PEAK = "allocated_bytes.all.peak"


class MemoryFigures(Protocol):
    """Of the modules ``torch.cuda`` and ``torch.npu``. Bytes."""

    def synchronize(self, device: torch.device) -> None: ...

    def empty_cache(self) -> None:
        """Give back what torch keeps without need."""

    def mem_get_info(self, device: torch.device) -> tuple[int, int]:
        """Free and total of the whole card, whoever uses it."""

    def memory_reserved(self, device: torch.device) -> int:
        """What torch has taken of the card."""

    def memory_stats(self, device: torch.device) -> dict[str, int]: ...

    def reset_peak_memory_stats(self, device: torch.device) -> None: ...


class CardMemory:
    """Of one device, counted from before anything was put there."""

    def __init__(self, figures: MemoryFigures, device: torch.device) -> None:
        self._figures = figures
        self._device = device
        self.free_at_start = self.now().free
        self._torch_at_start = figures.memory_reserved(device)

    def now(self) -> Memory:
        free, total = self._figures.mem_get_info(self._device)
        return Memory(free=free, total=total)

    def cache_room(
        self, fraction: float, widest_steps: Callable[[], int], captured: Callable[[], AbstractContextManager[int]]
    ) -> CacheRoom:
        """``fraction`` of the card less the peak of the ``widest_steps``, what captured steps keep for themselves, and
        what is taken outside torch. Raises ``EngineError`` when the steps do not fit."""
        peak = self._peak(widest_steps)
        figures, device = self._figures, self._device
        before = figures.memory_reserved(device)
        with captured() as num_beyond:
            figures.synchronize(device)
            figures.empty_cache()
            by_torch = figures.memory_reserved(device)
            memory = self.now()
        figures.empty_cache()
        graphs = max(0, by_torch - before - num_beyond)
        outside_torch = max(0, self.free_at_start - memory.free - (by_torch - self._torch_at_start))
        allowed = min(int(memory.total * fraction), self.free_at_start)
        return CacheRoom(max(0, allowed - peak - graphs - outside_torch), share=1.0, is_shared=False)

    def _peak(self, widest_steps: Callable[[], int]) -> int:
        """Bytes that torch held at most, the weights among them, without the steps' own cache."""
        figures, device = self._figures, self._device
        figures.empty_cache()
        figures.reset_peak_memory_stats(device)
        try:
            cache_bytes = widest_steps()
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            raise EngineError(
                "maxPrefillTokens: beside the weights there is no memory for a step of so many tokens; lower it, or "
                "maxBatchSize"
            ) from error
        figures.synchronize(device)
        peak = figures.memory_stats(device)[_PEAK] - cache_bytes
        figures.empty_cache()
        return peak
