"""Bytes that all requests together hold of large bodies and of media, bounded."""

from __future__ import annotations

import threading
from typing import Final

from mindserve.chat.media.faults import Abandoned, MediaFault
from mindserve.chat.media.limits import SizeLimit
from mindserve.errors import RefusalKind, RequestRefused

RETRY_AFTER_S: Final = 5
"""About the time that fetching and decoding the items of another request takes."""


class ByteBudget:
    """How many bytes are held, of how many. Threads may use it."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held = 0
        self._lock = threading.Lock()

    @property
    def num_held(self) -> int:
        return self._held

    def lease(self, total: SizeLimit) -> Lease:
        """The share of one request, at most ``total``; nothing is held yet."""
        return Lease(self, total)

    def take(self, num_bytes: int) -> None:
        """Raises ``RequestRefused`` (OVERLOADED)."""
        with self._lock:
            if self._held + num_bytes > self._max_bytes:
                raise RequestRefused(
                    f"the server holds as much of large requests and their media as it may, {self._max_bytes} bytes"
                    " (setting maxMediaInFlight)",
                    kind=RefusalKind.OVERLOADED,
                    retry_after_s=RETRY_AFTER_S,
                )
            self._held += num_bytes

    def give_back(self, num_bytes: int) -> None:
        with self._lock:
            self._held -= num_bytes


class Lease:
    """What one request holds. ``release`` ends it; what a thread asks for afterwards it does not get."""

    def __init__(self, budget: ByteBudget, total: SizeLimit) -> None:
        self._budget = budget
        self._total = total
        self._held = 0
        self._is_over = False
        self._lock = threading.Lock()

    def is_over(self) -> bool:
        return self._is_over

    def take(self, num_bytes: int) -> None:
        """Hold so many bytes more. Raises ``MediaFault`` beyond the request's share, ``RequestRefused`` (OVERLOADED)
        beyond that of all, ``Abandoned`` after the end."""
        with self._lock:
            if self._is_over:
                raise Abandoned
            if self._held + num_bytes > self._total.max_bytes:
                raise MediaFault(total_text(self._held + num_bytes, self._total))
            self._budget.take(num_bytes)
            self._held += num_bytes

    def release(self) -> None:
        """Give everything back. Idempotent."""
        with self._lock:
            self._is_over = True
            held, self._held = self._held, 0
        self._budget.give_back(held)


def total_text(num_bytes: int, total: SizeLimit) -> str:
    return (
        f"brings the media of the request to {num_bytes} bytes together; at most {total.max_bytes} are allowed"
        f" (setting {total.setting})"
    )
