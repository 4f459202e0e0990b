"""Ties an engine process to the one that started it: it outlives neither its parent nor its purpose."""

from __future__ import annotations

import os
import signal
import threading
from typing import Final

from mindserve_engine.parent import end_with_parent

_STDIN: Final = 0
_LENGTH_BYTES: Final = 4


def send_block(pipe: int, block: bytes) -> None:
    """Write one length-prefixed block to the pipe that is a child's standard input."""
    remaining = memoryview(len(block).to_bytes(_LENGTH_BYTES, "big") + block)
    while remaining:
        remaining = remaining[os.write(pipe, remaining) :]


def receive_block() -> bytes:
    """Read the block that ``send_block`` wrote to our standard input. Raises ``EOFError``."""
    return _read_exactly(int.from_bytes(_read_exactly(_LENGTH_BYTES), "big"))


def _read_exactly(num_bytes: int) -> bytes:
    # the file descriptor itself: a buffered stdin would be locked by the watching thread when the process ends
    block = b""
    while len(block) < num_bytes:
        part = os.read(_STDIN, num_bytes - len(block))
        if not part:
            raise EOFError("the parent process is gone")
        block += part
    return block


def tie_to_parent(parent_pid: int) -> None:
    """End this process when its parent ends, however it ends: the kernel kills it where it can (Linux), and the end
    of our standard input, which the parent holds open, ends it everywhere.

    Signals that a terminal or a service manager sends to all processes at once are ignored: the parent decides.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end_with_parent(parent_pid)
    threading.Thread(target=_exit_at_end_of_input, name="lifeline", daemon=True).start()


def _exit_at_end_of_input() -> None:
    while os.read(_STDIN, 1):
        pass
    os._exit(1)
