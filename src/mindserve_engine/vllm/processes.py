"""The processes that vLLM starts."""

from __future__ import annotations

import contextlib
from typing import Final

import psutil

_GRACE_S: Final = 1.0


class Processes:
    """Those of one engine: what vLLM starts below this process from now on."""

    def __init__(self) -> None:
        self._others = {process.pid for process in _spawned()}

    def living(self) -> list[psutil.Process]:
        return [process for process in _spawned() if process.pid not in self._others]

    def end(self) -> None:
        """End those that still run. Blocking."""
        end_processes(self.living())


def end_processes(processes: list[psutil.Process]) -> None:
    """End those of them that still run: politely, then not. Blocking."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    _, stubborn = psutil.wait_procs(processes, timeout=_GRACE_S)
    for process in stubborn:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(stubborn, timeout=_GRACE_S)


def _spawned() -> list[psutil.Process]:
    """vLLM names its processes, and starts them by multiprocessing's spawn."""
    return [process for process in psutil.Process().children(recursive=True) if _is_spawned(process)]


def _is_spawned(process: psutil.Process) -> bool:
    try:
        return process.name().startswith("VLLM::") or "multiprocessing.spawn" in " ".join(process.cmdline())
    except psutil.Error:
        return False
