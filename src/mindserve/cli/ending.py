"""The end of the process, and threads that must not hold it up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, NoReturn, TypeVar

T = TypeVar("T")
EXIT_ENGINE_LOST: Final = 1
"""Nothing is wrong with what the server was told: whoever supervises it should start it again."""


def leave(code: int) -> NoReturn:
    """End the process with ``code``, its last lines written.

    The event loop's and the interpreter's own end would wait for every worker thread, and one of them may be in the
    middle of a prompt that takes minutes. What else they do, the caller has done: the engine is closed.
    """
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # its reader is gone, or it was closed
            stream.flush()
    os._exit(code)


async def in_daemon_thread(function: Callable[[], T], *, name: str) -> T:
    """``function()``, run beside the event loop in a thread that neither a cancelled caller nor the loop's end waits
    for; both wait for those of ``asyncio.to_thread``."""
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()  # from here on cancelling only leaves it alone

    def run() -> None:
        try:
            outcome.set_result(function())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await asyncio.wrap_future(outcome)
