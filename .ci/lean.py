"""Proves that what `make serve` installs is all that serving needs: run it with the Python of that environment.

Every module is imported, for what is imported late, and the default model answers one question.
"""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
import urllib.request
from importlib import import_module

PACKAGES = ("mindserve", "mindserve_engine")
ELSEWHERE = "mindserve_engine.vllm."
"""What runs in an environment of its own only."""
QUESTION = "What is the capital of France?"
ANSWER = "Paris"


def import_everything() -> None:
    for package in PACKAGES:
        for module in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
            if not module.name.endswith("__main__") and not module.name.startswith(ELSEWHERE):
                import_module(module.name)


def ask(url: str) -> str:
    body = {
        "model": "SmolLM2-135M-Instruct",
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": 32,
        "temperature": 0,
    }
    request = urllib.request.Request(  # noqa: S310 - our own server
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as response:  # noqa: S310 - our own server
        content: str = json.load(response)["choices"][0]["message"]["content"]
    return content


def first_answer() -> str:
    """Start the server, ask, and let it drain."""
    command = [sys.executable, "-m", "mindserve", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 - our own words
        try:
            ready = next((line for line in server.stdout or () if line.startswith("ready: ")), None)
            if ready is None:
                raise SystemExit("the server ended before it was ready")
            return ask(ready.removeprefix("ready: ").strip())
        finally:
            server.terminate()
            server.communicate(timeout=60)


def main() -> None:
    import_everything()
    answer = first_answer()
    if ANSWER not in answer:
        raise SystemExit(f"{QUESTION} {answer}")
    print(f"lean environment: {QUESTION} {answer.strip()}")  # noqa: T201 - to whoever reads CI's log


if __name__ == "__main__":
    main()
