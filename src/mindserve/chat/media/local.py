"""Files of the media folder: found from its descriptor, without following a link, and read within their size."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from mindserve.chat.media.faults import Abandoned, MediaFault
from mindserve.chat.media.limits import SizeLimit

_MAX_STEPS: Final = 32
_STEP: Final = re.compile(r"""[^\x00-\x1f\x7f\ud800-\udfff%?#\\:*"<>|]{1,255}""")
"""A name of a file or folder: nothing that another system, or a URL, would read in another way."""
_PIECE_BYTES: Final = 1024 * 1024
_UNREADABLE: Final = "names no file that can be read: there is none, or it is not open to requests"
"""One text whatever the reason is: an answer must not tell which files there are."""


def unreadable(reason: str) -> MediaFault:
    return MediaFault(_UNREADABLE, reason)


def local_steps(name: str, root: str) -> tuple[str, ...]:
    """The way from ``root`` to the file: an absolute name must lie below it, any other starts there. Looks at the text
    alone. Raises ``MediaFault``."""
    if name.startswith("/"):
        if not name.startswith(f"{root}/"):
            raise unreadable("outside the media folder")
        name = name[len(root) :]
    steps = tuple(step for step in name.split("/") if step not in ("", "."))
    if name.endswith("/") or not 0 < len(steps) <= _MAX_STEPS:
        raise unreadable("no name of a file")
    if not all(_STEP.fullmatch(step) and not step.startswith(".") for step in steps):
        raise unreadable("a step of the name is not allowed")
    return steps


def read_local(
    root: str,
    steps: tuple[str, ...],
    limit: SizeLimit,
    *,
    take: Callable[[int], None],
    is_abandoned: Callable[[], bool],
) -> bytearray:
    """The file's bytes; ``take`` is told their number before they are read. For a worker thread.

    Raises ``MediaFault``, what ``take`` raises, and ``Abandoned`` between two pieces.
    """
    with ExitStack() as descriptors:
        try:
            folder = _open(root, os.O_DIRECTORY, None, descriptors)
            for step in steps[:-1]:
                folder = _open(step, os.O_DIRECTORY | os.O_NOFOLLOW, folder, descriptors)
            # A pipe without a writer would hold the thread for ever without O_NONBLOCK; files do not heed it.
            file = _open(steps[-1], os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, folder, descriptors)
            size = _checked_size(os.fstat(file), os.fstat(folder), limit)
            take(size)
            return _read(file, size, is_abandoned)
        except OSError as error:
            raise unreadable(error.strerror or type(error).__name__) from None


def _open(name: str, flags: int, folder: int | None, descriptors: ExitStack) -> int:
    descriptor = os.open(name, flags | os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    descriptors.callback(os.close, descriptor)
    return descriptor


def _checked_size(file: os.stat_result, folder: os.stat_result, limit: SizeLimit) -> int:
    if not stat.S_ISREG(file.st_mode):
        raise unreadable("not a regular file")
    if file.st_nlink > 1 and folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise unreadable("a hard link in a folder that others may write to")
    if file.st_size > limit.max_bytes:
        raise too_large(file.st_size, limit)
    if file.st_size == 0:
        raise MediaFault("holds no data")
    return file.st_size


def too_large(num_bytes: int, limit: SizeLimit, *, is_all: bool = True) -> MediaFault:
    """``is_all``: the file has no more than ``num_bytes``, as far as is known."""
    size = f"{num_bytes} bytes" if is_all else f"{num_bytes} bytes or more"
    return MediaFault(f"holds {size}; at most {limit.max_bytes} are allowed (setting {limit.setting})")


def _read(file: int, size: int, is_abandoned: Callable[[], bool]) -> bytearray:
    data = bytearray(size)
    view, end = memoryview(data), 0
    while end < size:
        if is_abandoned():
            raise Abandoned
        num_read = os.readv(file, [view[end : end + _PIECE_BYTES]])
        if num_read == 0:
            raise unreadable("became shorter while it was read")
        end += num_read
    if os.read(file, 1):
        raise unreadable("became longer while it was read")
    return data
