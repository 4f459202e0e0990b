"""A rate over the last seconds, for gauges such as tokens per second."""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW_S: Final = 10


class RateWindow:
    """Counts per whole second, kept for ``WINDOW_S`` seconds. ``now`` is monotonic, in seconds."""

    def __init__(self) -> None:
        self._counts: deque[list[int]] = deque()  # [second, count], oldest first

    def add(self, count: int, now: float) -> None:
        second = int(now)
        if self._counts and self._counts[-1][0] == second:
            self._counts[-1][1] += count
            return
        self._counts.append([second, count])
        self._forget(second)

    def per_second(self, now: float) -> float:
        self._forget(int(now))
        return sum(count for _, count in self._counts) / WINDOW_S

    def _forget(self, second: int) -> None:
        while self._counts and self._counts[0][0] <= second - WINDOW_S:
            self._counts.popleft()
