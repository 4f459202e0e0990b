"""A small process that ends vLLM's processes when the server is gone, however it went.

They would not: some end with their parent, but not while they start, and their core does not notice at all. Whoever
their parent has become by then, they are known by a mark in the environment that they were started with; and where
they have written their name over it, because the small process has seen them while the server lived.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import subprocess
import sys
from typing import Final

import psutil

_LOOK_EVERY_S: Final = 1.0
_END_S: Final = 5.0
_KILL_S: Final = 1.0
_MAX_SWEEPS: Final = 20
_STDIN: Final = 0
_MARK: Final = "MINDSERVE_GUARDED"
"""A variable of all processes that are started while there is a guardian."""


class Guardian:
    """Holds the pipe at whose end the small process acts. To be made before vLLM's processes are started."""

    def __init__(self, tell: int = subprocess.DEVNULL) -> None:
        """``tell``: where the ids of the processes go that the small one has seen."""
        self._mark = secrets.token_hex(8)
        command = [sys.executable, "-m", __name__, str(os.getpid()), self._mark]
        environ = {name: value for name, value in os.environ.items() if name != _MARK}
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            command, stdin=subprocess.PIPE, stdout=tell, start_new_session=True, env=environ
        )
        os.environ[_MARK] = self._mark

    def let_go(self) -> None:
        """In a fork: the pipe is the other process' to hold."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def close(self) -> None:
        """What is left is killed, and the small process ends. Blocking, for a moment. Idempotent."""
        self.let_go()
        if os.environ.get(_MARK) == self._mark:
            del os.environ[_MARK]
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)


def watch(server: int, mark: str) -> None:
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
    for _ in range(_MAX_SWEEPS):  # one that was about to start another may have done so
        marked = _marked(mark)
        if not marked:
            break
        _kill(marked)


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


def _marked(mark: str) -> set[psutil.Process]:
    return {process for process in psutil.process_iter() if _has(process, mark)}


def _has(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(_MARK) == mark
    except (psutil.Error, OSError):  # somebody else's, or it has ended
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
    psutil.wait_procs(seen, timeout=_KILL_S)


if __name__ == "__main__":
    watch(int(sys.argv[1]), sys.argv[2])
