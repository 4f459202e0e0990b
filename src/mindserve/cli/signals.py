"""SIGTERM and SIGINT: the first asks for a drain, the second ends it, a third ends the process where it stands."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Final

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
EXIT_BY_SIGNAL: Final = 128
"""Plus the signal's number: what shells report."""


class StopSignals:
    """Install it inside the running event loop."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        """Someone wants the server to end."""
        self.force = asyncio.Event()
        """They want it now."""
        self.exit_code = 0
        """0 after one signal; by the second signal's number afterwards."""
        loop = asyncio.get_running_loop()
        for number in _STOP_SIGNALS:
            loop.add_signal_handler(number, self._receive, number)

    def _receive(self, number: int) -> None:
        if self.force.is_set():
            os._exit(EXIT_BY_SIGNAL + number)
        if self.stop.is_set():
            self.exit_code = EXIT_BY_SIGNAL + number
            self.force.set()
        self.stop.set()
