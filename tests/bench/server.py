"""A server of our own for the time of a measurement."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator

_START_TIMEOUT_S = 180
_READY = "ready: "


@contextlib.contextmanager
def serve_default_model(*arguments: str) -> Iterator[str]:
    """Start ``mindserve serve`` on a free port, yield its base URL when it is ready, stop it afterwards."""
    command = [sys.executable, "-m", "mindserve", "serve", "--port", "0", "--log-level", "warning", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield _url_when_ready(process)
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
