"""Copies of the model in one engine (data parallelism): which of them gets a request, and which of them is silent.

vLLM's own health check tells only what its front end has noticed, and that is nothing when a machine with a copy is
lost: what was sent there waits for ever. So requests are placed here, not by vLLM, and each copy that has work must be
heard of. It is with every step, whether or not a request gets a token of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Ranks:
    """Belongs to one event loop. Times are seconds of ``now``."""

    def __init__(self, number: int, timeout_s: float, *, now: Callable[[], float] = time.monotonic) -> None:
        self._timeout_s = timeout_s
        self._now = now
        self._loads = [0] * number
        self._num_open = [0] * number
        self._heard_at = [0.0] * number

    @property
    def number(self) -> int:
        return len(self._loads)

    def place(self, load: int) -> int:
        """The rank for a request, all of whose parts go there, where they find its prompt in the cache: that of the
        least load. ``load``: sequences in a step."""
        rank = self._loads.index(min(self._loads))
        self._loads[rank] += load
        return rank

    def leave(self, rank: int, load: int) -> None:
        """The request is over."""
        self._loads[rank] -= load

    def open(self, rank: int) -> None:
        """Something was sent there that steps must come of."""
        if not self._num_open[rank]:
            self._heard_at[rank] = self._now()
        self._num_open[rank] += 1

    def close(self, rank: int) -> None:
        self._num_open[rank] -= 1

    def heard(self, rank: int) -> None:
        """A step of it arrived."""
        if 0 <= rank < len(self._heard_at):
            self._heard_at[rank] = self._now()

    def silent(self) -> tuple[int, ...]:
        """Those that have work and were not heard of for longer than the timeout."""
        oldest = self._now() - self._timeout_s
        pairs = zip(self._num_open, self._heard_at, strict=True)
        return tuple(rank for rank, (num_open, heard_at) in enumerate(pairs) if num_open and heard_at < oldest)
