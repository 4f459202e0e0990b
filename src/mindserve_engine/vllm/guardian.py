"""A small process that ends vLLM's processes when the server is gone, however it went.

They would not: some end with their parent, but not while they start, and their core does not notice at all. Whoever
their parent has become by then, the small process has seen them while the server lived.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from typing import Final

import psutil

_LOOK_EVERY_S: Final = 1.0
_END_S: Final = 5.0
_STDIN: Final = 0


class Guardian:
    """Holds the pipe at whose end the small process acts. To be made before vLLM's processes are started."""

    def __init__(self, tell: int = subprocess.DEVNULL) -> None:
        """``tell``: where the ids of the processes go that the small one has seen."""
        command = [sys.executable, "-m", __name__, str(os.getpid())]
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            command, stdin=subprocess.PIPE, stdout=tell, start_new_session=True
        )

    def let_go(self) -> None:
        """In a fork: the pipe is the other process' to hold."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def close(self) -> None:
        """What is left is killed, and the small process ends. Blocking, for a moment. Idempotent."""
        self.let_go()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)


def watch(server: int) -> None:
    """Return when standard input has ended and what the process ``server`` had started has been killed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    seen: set[psutil.Process] = set()
    while not _input_has_ended():
        new = below(server) - seen
        if new:
            print(*(process.pid for process in new), flush=True)  # noqa: T201 - to whoever wants to be told
        seen = {process for process in seen | new if process.is_running()}
    _kill(seen)


def below(server: int) -> set[psutil.Process]:
    """vLLM's processes below ``server``: multiprocessing starts them, and they take names of their own."""
    try:
        return {one for one in psutil.Process(server).children(recursive=True) if _is_vllms(one)}
    except psutil.Error:
        return set()


def _is_vllms(process: psutil.Process) -> bool:
    try:
        return process.name().startswith("VLLM::") or "multiprocessing" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def _input_has_ended() -> bool:
    readable, _, _ = select.select([_STDIN], [], [], _LOOK_EVERY_S)
    return bool(readable) and not os.read(_STDIN, 1)


def _kill(seen: set[psutil.Process]) -> None:
    """With what they have started since they were seen."""
    for process in list(seen):
        with contextlib.suppress(psutil.Error):
            seen.update(process.children(recursive=True))
    for process in seen:
        with contextlib.suppress(psutil.Error):  # ends with its parent, or is no longer the one that was seen
            process.kill()


if __name__ == "__main__":
    watch(int(sys.argv[1]))
