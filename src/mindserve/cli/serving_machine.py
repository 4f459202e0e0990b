"""Whether the machine that serves is still there, as a further one sees it."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from typing import Final

EVERY_S: Final = 1.0
_CONNECT_S: Final = 1.0
_FAILURES: Final = 3
"""In a row: shorter than a restart takes, longer than a full queue of connections."""


class ServingMachine:
    """Its HTTP port is open from before the model loads until its process ends. vLLM's own processes on further
    machines need not notice that end, and could not join a machine that has begun anew."""

    def __init__(self, address: str, port: int, *, now: Callable[[], float] = time.monotonic) -> None:
        self._place = (address, port)
        self._now = now
        self._next = 0.0
        self._was_there = False
        self._num_failures = 0

    def is_gone(self) -> bool:
        """It was there, and is not any more. Looks at most every ``EVERY_S``; may block for a second."""
        if self._now() >= self._next:
            self._look()
            self._next = self._now() + EVERY_S
        return self._was_there and self._num_failures >= _FAILURES

    def _look(self) -> None:
        self._num_failures += 1
        with contextlib.suppress(OSError), socket.create_connection(self._place, timeout=_CONNECT_S):
            self._was_there, self._num_failures = True, 0
