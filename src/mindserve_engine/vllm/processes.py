"""The processes that vLLM starts."""

from __future__ import annotations

import contextlib

import psutil

_GRACE_S = 1.0


def children() -> list[psutil.Process]:
    """vLLM's processes below this one: it names them, and starts them by multiprocessing's spawn."""
    return [process for process in psutil.Process().children(recursive=True) if _is_spawned(process)]


def end_children() -> None:
    """End those that still run: politely, then not. Blocking."""
    left = children()
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    _, stubborn = psutil.wait_procs(left, timeout=_GRACE_S)
    for process in stubborn:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(stubborn, timeout=_GRACE_S)


def _is_spawned(process: psutil.Process) -> bool:
    try:
        return process.name().startswith("VLLM::") or "multiprocessing.spawn" in " ".join(process.cmdline())
    except psutil.Error:
        return False
