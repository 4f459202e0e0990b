"""A process that does not outlive the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def end_with_parent(parent_pid: int) -> None:
    """The kernel kills this process when the thread that started it ends, however it ends. On Linux; elsewhere only a
    parent that has ended already is noticed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it ended before the tie was made
        os._exit(1)
