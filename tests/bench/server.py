"""A server of our own for the time of a measurement."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

_START_TIMEOUT_S = 180
_READY = "ready: "


@dataclass(frozen=True)
class Served:
    """A running server."""

    url: str
    pid: int
    """Of the front end; the engine process is its child."""
    start_s: float
    """From the command to the ready line."""

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port is not None
        return port


@contextlib.contextmanager
def serving(*arguments: str) -> Iterator[Served]:
    """Start ``mindserve serve`` on a free port (default model unless ``arguments`` say otherwise), yield it when it is
    ready, stop it afterwards."""
    command = [sys.executable, "-m", "mindserve", "serve", "--port", "0", "--log-level", "warning", *arguments]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        url = _url_when_ready(process)
        yield Served(url, process.pid, time.perf_counter() - began)
    finally:
        process.terminate()
        process.communicate(timeout=60)


def _url_when_ready(process: subprocess.Popen[str]) -> str:
    """What the server's ready line says."""
    assert process.stdout is not None
    too_late = threading.Timer(_START_TIMEOUT_S, process.kill)
    too_late.start()
    try:
        for line in process.stdout:
            if line.startswith(_READY):
                return line.removeprefix(_READY).rstrip("\n")
    finally:
        too_late.cancel()
    raise RuntimeError(f"the server ended with status {process.wait()} before it was ready")
