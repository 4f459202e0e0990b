"""`python -m tests.clients.matrix`: try the clients that people use in both dialects and write `spec/docs/clients.md`.

`make test-clients` installs them first. What does not work must stand in `notes.yaml` with its reason, and what stands
there must not work: else nothing is written and the exit status is 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mindserve.config.settings import Dialect
from tests.clients.page import Cell, Notes, page, read_notes
from tests.clients.server import serving

HERE: Final = Path(__file__).parent
PAGE: Final = HERE.parents[1] / "spec" / "docs" / "clients.md"
_PATIENCE_S: Final = 180


@dataclass(frozen=True)
class Client:
    """One column: ``package`` is what its version is known by, ``program`` what tries it."""

    name: str
    package: str
    program: str

    @property
    def is_python(self) -> bool:
        return self.program.endswith(".py")


CLIENTS: Final = (
    Client("openai-python", "openai", "python/with_openai.py"),
    Client("openai-node", "openai", "node/with_openai.mjs"),
    Client("Vercel AI SDK", "ai", "node/with_ai_sdk.mjs"),
    Client("langchain-openai", "langchain-openai", "python/with_langchain.py"),
    Client("litellm", "litellm", "python/with_litellm.py"),
    Client("pydantic-ai", "pydantic-ai-slim", "python/with_pydantic_ai.py"),
)


def version(client: Client) -> str:
    """The one that is installed: they are pinned."""
    if not client.is_python:
        packages = json.loads((HERE / "node" / "package-lock.json").read_text("utf-8"))["packages"]
        return str(packages[f"node_modules/{client.package}"]["version"])
    lines = (HERE / "python" / "requirements.txt").read_text("utf-8").splitlines()
    pins = {name.partition("[")[0]: pin for name, _, pin in (line.partition("==") for line in lines)}
    return pins[client.package]


async def tried(client: Client, url: str, python: str) -> dict[str, str]:
    """What was attempted -> the client's complaint, "" where it worked. Raises when the program itself fails."""
    command = [python if client.is_python else "node", str(HERE / client.program), f"{url}/v1"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await asyncio.wait_for(process.communicate(), _PATIENCE_S)
    if process.returncode != 0:
        raise RuntimeError(f"{client.program} ended with status {process.returncode}")
    lines: list[dict[str, Any]] = [json.loads(line) for line in output.splitlines() if line.startswith(b"{")]
    return {line["what"]: line["problem"] for line in lines}


async def results(python: str) -> dict[Cell, str]:
    """All clients one after the other, against a server of each dialect."""
    found: dict[Cell, str] = {}
    for dialect in Dialect:
        async with serving(dialect) as live:
            for client in CLIENTS:
                for what, problem in (await tried(client, live.url, python)).items():
                    found[Cell(client.name, what, dialect)] = problem
    return found


def unexplained(found: dict[Cell, str], notes: Notes) -> list[str]:
    """What the notes do not say, or say wrongly."""
    faults = []
    for cell, problem in found.items():
        note = notes.failures.get(cell)
        if problem and (note is None or note.says not in problem):
            faults.append(f"{cell}: {problem}")
        elif not problem and note is not None:
            faults.append(f"{cell}: works, though notes.yaml says it does not")
    known = {(cell.client, cell.what) for cell in found}
    clients, whats = {client for client, _ in known}, {what for _, what in known}
    faults += [
        f"{client}, {what}: was not attempted, and notes.yaml does not say why"
        for client in sorted(clients)
        for what in sorted(whats)
        if (client, what) not in known and what not in notes.absent
    ]
    return faults + [
        f"{cell}: notes.yaml knows it, but nothing attempts it" for cell in notes.failures if cell not in found
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Try the clients that people use")
    parser.add_argument("--python", default=sys.executable, help="of the environment with the clients for Python")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page would differ")
    options = parser.parse_args()
    found, notes = asyncio.run(results(options.python)), read_notes()
    faults = unexplained(found, notes)
    print("\n".join(faults))
    if faults:
        return 1
    text = page({client.name: version(client) for client in CLIENTS}, found, notes)
    if options.check:
        return int(PAGE.read_text("utf-8") != text)
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
