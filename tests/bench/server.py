"""A server of our own for the time of a measurement."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx2

_START_TIMEOUT_S = 180


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextlib.contextmanager
def serve_default_model(*arguments: str) -> Iterator[str]:
    """Start ``mindserve serve`` on a free port, yield its base URL when it is ready, stop it afterwards."""
    port = _free_port()
    command = [sys.executable, "-m", "mindserve", "serve", "--port", str(port), "--log-level", "warning", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(url, process)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=60)


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with status {process.returncode} before it was ready")
        with contextlib.suppress(httpx2.TransportError):
            if httpx2.get(f"{url}/v2/health/ready").status_code == httpx2.codes.OK:
                return
        time.sleep(0.1)
    raise RuntimeError(f"the server was not ready within {_START_TIMEOUT_S} s")
