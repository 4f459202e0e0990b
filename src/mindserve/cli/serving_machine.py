"""Whether the machine that serves is still there, as a further one sees it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Final

EVERY_S: Final = 1.0
_CONNECT_S: Final = 1.0


class ServingMachine:
    """Its HTTP port is open from before the model loads until its process ends. vLLM's own processes on further
    machines need not notice that end, and could not join a machine that has begun anew."""

    def __init__(self, address: str, port: int, timeout_s: float, *, now: Callable[[], float] = time.monotonic) -> None:
        """``timeout_s``: it may be out of reach for so long."""
        self._place = (address, port)
        self._timeout_s = timeout_s
        self._now = now
        self._next = 0.0
        self._was_there = False
        self._failing_since: float | None = None
        self._has_refused = False
        """Since it was there: nothing listened, so its process had ended."""
        self._has_begun_anew = False

    def is_gone(self) -> bool:
        """It was there, and is out of reach or another process since. Looks at most every ``EVERY_S``; may block for a
        second, and until it was there once for as long as its name is looked up."""
        now = self._now()
        if now >= self._next:
            self._look(now)
            self._next = self._now() + EVERY_S
        if self._has_begun_anew:
            return True
        return self._was_there and self._failing_since is not None and now - self._failing_since >= self._timeout_s

    def _look(self, now: float) -> None:
        try:
            with socket.create_connection(self._place, timeout=_CONNECT_S) as connection:
                # The address of the machine that was joined: its name need not be found again, nor lead elsewhere.
                self._place = connection.getpeername()[:2]
        except OSError as error:
            self._has_refused |= self._was_there and isinstance(error, ConnectionRefusedError)
            if self._failing_since is None:
                self._failing_since = now
        else:
            self._has_begun_anew |= self._has_refused
            self._was_there, self._failing_since = True, None
