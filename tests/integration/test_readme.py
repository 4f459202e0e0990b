"""Every command and every snippet of the README is run as it stands, but for the port and the path to a model."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
CONFIG = (ROOT / "spec" / "docs" / "config.md").read_text("utf-8")
SEEING = "http://127.0.0.1:1026"
"""The server of the example with an image."""
SMALL_BENCH = "--clients 1 --requests 1 --max-tokens 4"


def _fences(language: str, document: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", document, flags=re.MULTILINE | re.DOTALL)


PLAIN, SEEN = ([one for one in _fences("python") if (SEEING in one) is is_seen] for is_seen in (False, True))
"""Snippets for the default model, and for one that takes media."""


def _commands() -> list[str]:
    """Shell commands, one each; continued lines and quoted bodies stay together, comments go."""
    text = "".join(_fences("sh")).replace("\\\n", "")
    commands, pending = [], ""
    for line in text.splitlines():
        pending += line + "\n"
        try:
            words = shlex.split(pending, comments=True)
        except ValueError:  # a quoted body that goes on
            continue
        if words:
            commands.append(pending.strip())
        pending = ""
    return commands


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _environ() -> dict[str, str]:
    make = {"VENV": sys.prefix, "MAKEFLAGS": "", "PYTHONUNBUFFERED": "1"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MIES_", "MAKE"))}
    return {**kept, **make}


@contextmanager
def _serving(command: str) -> Iterator[str]:
    """Run a command that serves; yields the URL it says it is ready at."""
    with subprocess.Popen(
        ["bash", "-c", f"exec {command}"], cwd=ROOT, env=_environ(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            said = []
            for line in process.stdout:
                said.append(line)
                if line.startswith("ready: "):
                    break
            else:
                raise AssertionError(f"{command} ended: {''.join(said)}")
            yield line.removeprefix("ready: ").strip()
        finally:
            process.terminate()
            process.stdout.read()


@pytest.fixture(scope="module")
def url(default_model: Path) -> Iterator[str]:
    with _serving(f'make -e --no-print-directory serve ARGS="--port {_free_port()}"') as ready:
        yield ready


def _run(command: str) -> str:
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=_environ(), capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_the_commands_are_those_this_file_runs() -> None:
    kinds = {" ".join(shlex.split(command, comments=True)[:2]) for command in _commands()}
    assert kinds == {
        "make serve",  # the fixture
        "make test",  # CI, and this very run
        "make bench",
        "curl -s",
        "curl -sN",
        'echo {media: true, replies: [{default: true, pieces: [A page, " with a chart."]}]}',
        ".venv/bin/mindserve serve",
        ".venv/bin/mindserve check-config",
        ".venv/bin/mindserve spec",
        ".venv/bin/mindserve-conformance run",
        ".venv/bin/mindserve-conformance coverage",
    }


def test_curl_commands(url: str) -> None:
    commands = [command for command in _commands() if command.startswith("curl")]
    outputs = [
        _run(command.replace("http://127.0.0.1:1025", url).replace("curl ", "curl --fail ")) for command in commands
    ]
    whole, stream, models, ready, metrics = outputs
    assert "Paris" in json.loads(whole)["choices"][0]["message"]["content"]
    assert stream.endswith("data: [DONE]\n\n")
    assert json.loads(models)["data"][0]["id"] == "SmolLM2-135M-Instruct"
    assert json.loads(ready)
    assert "request_received_total" in metrics


@pytest.mark.parametrize("snippet", PLAIN, ids=["sdk", "openai"])
def test_python_snippets(url: str, snippet: str) -> None:
    assert _run_python(snippet.replace("http://127.0.0.1:1025", url)).endswith("]")


def _run_python(snippet: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", snippet], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_example_with_an_image(tmp_path: Path) -> None:
    """The script is written as it stands, the server started and asked."""
    (write,) = (command for command in _commands() if command.startswith("echo "))
    (serve,) = (command for command in _commands() if "--engine scripted" in command)
    (snippet,) = SEEN
    script = str(tmp_path / "seeing.yaml")
    _run(write.replace("/tmp/seeing.yaml", script))
    mine = serve.replace(".venv/bin/mindserve", f"{sys.executable} -m mindserve").replace("/tmp/seeing.yaml", script)
    with _serving(mine.replace("1026", str(_free_port()))) as ready:
        said, _, num_tokens = _run_python(snippet.replace(SEEING, ready)).rpartition(" ")
    assert said == "A page with a chart."
    assert int(num_tokens) > 1000  # pixels of a whole page


def test_bench(url: str) -> None:
    running, own = "", ""
    for command in (command for command in _commands() if command.startswith("make bench")):
        small = f'{command.split("#")[0].replace("http://127.0.0.1:1025", url)} ARGS="{SMALL_BENCH}"'
        output = _run(small.replace("make bench", "make -e --no-print-directory bench"))
        running, own = (output, own) if "BASE_URL" in command else (running, output)
    assert "tok/s" in running
    assert "tok/s" in own


def test_conformance_commands(url: str, tmp_path: Path) -> None:
    """The whole run is `make conformance`; here it is a few cases."""
    for command in (command for command in _commands() if command.startswith(".venv/bin/mindserve-conformance")):
        mine = command.split(" #")[0].replace(".venv/bin/mindserve-conformance", f"{sys.executable} -m conformance")
        few = f" --only 'whole.p*' --out {tmp_path / 'report'}" if " run " in mine else ""
        _run(mine.replace("http://127.0.0.1:1025", url).replace(" --out /tmp/report", few))
    assert {path.name for path in (tmp_path / "report").iterdir()} == {"results.yaml", "junit.xml", "report.html"}


def test_mindserve_commands(tmp_path: Path, default_model: Path) -> None:
    (config,) = _fences("json", CONFIG)
    file = tmp_path / "config.json"
    file.write_text(config.replace("/path/to/model", str(default_model)).replace("1025", str(_free_port())), "utf-8")
    for command in (command for command in _commands() if command.startswith(".venv/bin/mindserve ")):
        if "--engine scripted" in command:  # the example with an image
            continue
        mine = command.split(" #")[0].replace(".venv/bin/mindserve", f"{sys.executable} -m mindserve")
        mine = mine.replace("config.json", str(file)).replace("/path/to/model", str(default_model))
        mine = mine.replace("8080", str(_free_port()))
        if " serve " in mine:
            with _serving(mine) as ready:
                models = _run(f"curl -s --fail {ready}/v1/models")
            assert json.loads(models)["data"][0]["id"] == "my-model"
        else:
            _run(mine)
