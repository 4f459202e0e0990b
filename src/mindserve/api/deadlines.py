"""The time limits of one generation: ``tokenTimeout`` between tokens and ``e2eTimeout`` over all.

One timer per request, armed for the nearest limit and looked at again when it fires, so that a token costs no timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mindserve.errors import GenerationTimeout


class Deadlines:
    """Calls ``expire`` once, when a limit runs out. Times are those of the event loop, in seconds.

    Only waiting for the engine counts against ``token_timeout_s``: a client that reads slowly holds the loop of its own
    stream, which says nothing about the engine.
    """

    def __init__(
        self,
        *,
        started_at: float,
        token_timeout_s: float,
        e2e_timeout_s: float,
        expire: Callable[[GenerationTimeout], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._token_timeout_s = token_timeout_s
        self._e2e_timeout_s = e2e_timeout_s
        self._e2e_at = started_at + e2e_timeout_s
        self._expire = expire
        self._waiting_since: float | None = started_at
        self._timer = self._loop.call_at(min(self._e2e_at, started_at + token_timeout_s), self._look)

    def waiting(self) -> None:
        """The next token is being waited for from now on."""
        self._waiting_since = self._loop.time()

    def received(self) -> None:
        """It came."""
        self._waiting_since = None

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        if now >= self._e2e_at:
            self._expire(GenerationTimeout(setting="e2eTimeout", limit_s=self._e2e_timeout_s))
            return
        token_at = (now if self._waiting_since is None else self._waiting_since) + self._token_timeout_s
        if now >= token_at:
            self._expire(GenerationTimeout(setting="tokenTimeout", limit_s=self._token_timeout_s))
            return
        self._timer = self._loop.call_at(min(self._e2e_at, token_at), self._look)
