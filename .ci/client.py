"""Proves that the SDK installs alone: run it with the Python of an environment that has the extra `client` alone.

Every module is imported, for what is imported late, and one request travels to a server that answers with an error. The
command `mindserve` says what it lacks.
"""

from __future__ import annotations

import pkgutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import import_module
from importlib.util import find_spec

PACKAGE = "mindserve_client"
FOREIGN = ("torch", "litestar", "msgspec", "transformers", "uvicorn", "yaml", "zmq")


class Refusing(BaseHTTPRequestHandler):
    """Answers 401 to everybody."""

    def do_POST(self) -> None:
        body = b'{"error": "no key", "error_type": "Unauthorized"}'
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Say nothing."""


def refusal() -> str:
    """What the SDK makes of it."""
    from mindserve_client import Client, Unauthorized

    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with Client(f"http://127.0.0.1:{server.server_port}") as client:
                client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hello"}])
        except Unauthorized as error:
            return str(error)
        finally:
            server.shutdown()
    raise SystemExit("a refusal was taken for an answer")


def main() -> None:
    brought = [name for name in FOREIGN if find_spec(name) is not None]
    if brought:
        raise SystemExit(f"mindserve[client] brings {', '.join(brought)}")
    for module in pkgutil.walk_packages(import_module(PACKAGE).__path__, f"{PACKAGE}."):
        import_module(module.name)
    command = [sys.executable, "-m", "mindserve", "serve"]
    served = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    if served.returncode != 2 or "pip install 'mindserve[cpu]'" not in served.stderr:
        raise SystemExit(f"mindserve says {served.stderr}")
    print(f"client environment: {refusal()}")  # noqa: T201 - to whoever reads CI's log


if __name__ == "__main__":
    main()
