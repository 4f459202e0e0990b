"""The process that decodes: it has one socket, its standard input, no environment, little memory, and no way to write a
file. Whatever a hostile file does to it, it is killed and replaced."""

from __future__ import annotations

import ctypes
import math
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

from mindserve.chat.media.decoding.decode_audio import decode_audio
from mindserve.chat.media.decoding.decode_image import decode_image
from mindserve.chat.media.decoding.decode_limits import DecodeLimits
from mindserve.chat.media.decoding.decode_video import decode_video
from mindserve.chat.media.decoding.rejected import MediaRejected
from mindserve.chat.media.decoding.sniff import HEAD_BYTES, container_for
from mindserve.chat.media.decoding.wire import (
    KIND_CODES,
    LENGTH_BYTES,
    READY,
    Decoded,
    Rejected,
    Setup,
    decode_setup,
    encode,
)
from mindserve_engine.types import MediaKind, MediaModel

_STDIN: Final = 0
_MAX_FILES: Final = 16
_PR_SET_PDEATHSIG: Final = 1
_MAX_CAUSE_CHARACTERS: Final = 300

Array = npt.NDArray[np.uint8] | npt.NDArray[np.float32]


def main() -> None:
    """Serve until the socket is closed at the other end."""
    connection = socket.socket(fileno=_STDIN)
    setup = _receive_setup(connection)
    _tie_to_parent(setup.parent_pid)
    _restrict(setup.limits)
    connection.sendall(READY)
    while _serve_one(connection, setup):
        pass


def decode(kind: MediaKind, file: BinaryIO, model: MediaModel, limits: DecodeLimits) -> tuple[Array, float]:
    """The array of ``MediaItem.data`` and its seconds per frame. Raises ``MediaRejected``."""
    file.seek(0)
    container = container_for(kind, file.read(HEAD_BYTES))
    match kind:
        case MediaKind.IMAGE:
            file.seek(0)
            return decode_image(file.read(), container, model, limits), 0.0
        case MediaKind.VIDEO:
            return decode_video(file, container, model, limits)
        case MediaKind.AUDIO:
            return decode_audio(file, container, model, limits), 0.0


def _serve_one(connection: socket.socket, setup: Setup) -> bool:
    """Whether there may be another."""
    code, files, _, _ = socket.recv_fds(connection, 1, 1)
    if not code:
        return False
    kind = next(kind for kind, its in KIND_CODES.items() if its == code)
    _grant_cpu(setup.limits.max_cpu_s)
    with open(files[0], "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor, not a path
        reply, array = _answer(kind, file, setup)
    connection.sendall(encode(reply))
    if array is not None:
        connection.sendall(np.ascontiguousarray(array).data)
    return True


def _answer(kind: MediaKind, file: BinaryIO, setup: Setup) -> tuple[Decoded | Rejected, Array | None]:
    try:
        array, seconds_per_frame = decode(kind, file, setup.model, setup.limits)
    except MediaRejected as error:
        return Rejected(str(error), _cause(error.__cause__)), None
    except MemoryError as error:
        return Rejected(f"the {kind} takes more memory to decode than is allowed", _cause(error)), None
    except Exception as error:  # what no decoder foresaw is no reason to end
        return Rejected(f"the {kind} cannot be decoded", _cause(error)), None
    return Decoded(array.shape, seconds_per_frame), array


def _cause(error: BaseException | None) -> str:
    return "" if error is None else f"{type(error).__name__}: {error}"[:_MAX_CAUSE_CHARACTERS]


def _receive_setup(connection: socket.socket) -> Setup:
    return decode_setup(_receive(connection, int.from_bytes(_receive(connection, LENGTH_BYTES), "big")))


def _receive(connection: socket.socket, num_bytes: int) -> bytes:
    block = connection.recv(num_bytes, socket.MSG_WAITALL)
    if len(block) < num_bytes:
        raise EOFError("the parent process is gone")
    return block


def _tie_to_parent(parent_pid: int) -> None:
    """End this process when its parent ends, however it ends and whatever is being decoded. Signals that a terminal or
    a service manager sends to all processes at once are ignored: the parent decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it ended before the tie was made
        os._exit(1)
    threading.Thread(target=_exit_at_hang_up, name="lifeline", daemon=True).start()


def _exit_at_hang_up() -> None:
    poll = select.poll()
    poll.register(_STDIN, 0)  # hanging up is always told
    poll.poll()
    os._exit(0)


def _restrict(limits: DecodeLimits) -> None:
    for kind, limit in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_NOFILE, _MAX_FILES)):
        resource.setrlimit(kind, (limit, limit))
    if sys.platform == "linux":  # others know the limit without keeping it
        resource.setrlimit(resource.RLIMIT_AS, (limits.max_memory_bytes, limits.max_memory_bytes))


def _grant_cpu(max_cpu_s: int) -> None:
    """The limit counts from the start of the process: each item gets its own share of time. Above it the kernel ends
    the process."""
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time()) + max_cpu_s, most))
