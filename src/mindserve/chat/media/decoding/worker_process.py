"""A process that decodes, as the server sees it: started, asked, killed."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec

import mindserve
import mindserve_engine
from mindserve.chat.media.decoding.decode_limits import DecodeLimits
from mindserve.chat.media.decoding.rejected import MediaRejected
from mindserve.chat.media.decoding.wire import (
    KIND_CODES,
    LENGTH_BYTES,
    MAX_MESSAGE_BYTES,
    READY,
    Decoded,
    Rejected,
    Setup,
    decode_reply,
    encode,
)
from mindserve_engine.types import MediaKind, MediaModel

_BOOT: Final = "import sys; sys.path[:0] = sys.argv[1:]; from mindserve.chat.media.decoding.worker import main; main()"
_ENVIRONMENT: Final = {"OPENBLAS_NUM_THREADS": "1"}
"""All that a worker's environment holds. A thread for each core would take address space, and nothing uses them."""
_ITEM_BYTES: Final = {MediaKind.IMAGE: 1, MediaKind.VIDEO: 1, MediaKind.AUDIO: 4}


class WorkerEnded(Exception):
    """The process is gone, or says what it cannot mean; it is of no more use."""


class WorkerProcess:
    """Belongs to the event loop it was made in, and dies with the thread that runs it."""

    def __init__(self, model: MediaModel, limits: DecodeLimits) -> None:
        """Returns before the process is ready. Raises ``OSError`` when the machine has no room for another."""
        self._model = model
        self._limits = limits
        self._is_ready = False
        self._is_receiving = False
        self._socket, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = _spawn(theirs)
            except OSError:
                self._socket.close()
                raise
        self._socket.setblocking(False)
        self._is_killed = False
        self._greet()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return not self._is_killed and self._process.poll() is None

    async def ready(self) -> None:
        """Wait until it has started. Raises ``WorkerEnded``."""
        if not self._is_ready and await self._receive(len(READY)) != READY:
            raise WorkerEnded("the decoding process did not start")
        self._is_ready = True

    async def ask(self, kind: MediaKind, file: int) -> tuple[Decoded, bytearray]:
        """Have the file behind the descriptor decoded. The array comes as its bytes, in C order.

        Raises ``MediaRejected``, or ``WorkerEnded``; after that, and when the caller does not wait for the answer, the
        process must be killed.
        """
        try:
            socket.send_fds(self._socket, [KIND_CODES[kind]], [file])
        except OSError as error:
            raise WorkerEnded("the decoding process does not read") from error
        length = int.from_bytes(await self._receive(LENGTH_BYTES), "big")
        if length > MAX_MESSAGE_BYTES:
            raise WorkerEnded("the decoding process sent a message that is too long")
        try:
            reply = decode_reply(bytes(await self._receive(length)))
        except msgspec.DecodeError as error:
            raise WorkerEnded("the decoding process sent a message that cannot be read") from error
        if isinstance(reply, Rejected):
            raise MediaRejected(reply.reason) from (RuntimeError(reply.cause) if reply.cause else None)
        if not _is_possible(kind, reply, self._model, self._limits):
            raise WorkerEnded(f"the decoding process sent an array of an impossible shape: {reply.shape}")
        return reply, await self._receive(math.prod(reply.shape) * _ITEM_BYTES[kind])

    def kill(self) -> asyncio.Task[int]:
        """At once; the task ends when nothing is left of the process. Whoever waits for its answer gets
        ``WorkerEnded``."""
        self._is_killed = True
        self._process.kill()
        if self._is_receiving:
            self._socket.shutdown(socket.SHUT_RDWR)  # a closed socket would never wake up its reader
        else:
            self._socket.close()
        return asyncio.create_task(asyncio.to_thread(self._process.wait))

    def _greet(self) -> None:
        setup = encode(Setup(os.getpid(), self._model, self._limits))
        with contextlib.suppress(OSError):  # it has ended already: its silence will tell
            self._socket.send(setup)  # a few hundred bytes into an empty buffer

    async def _receive(self, num_bytes: int) -> bytearray:
        block = bytearray(num_bytes)
        rest = memoryview(block)
        while rest:
            num_read = await self._receive_into(rest)
            if num_read == 0:
                raise WorkerEnded("the decoding process ended")
            rest = rest[num_read:]
        return block

    async def _receive_into(self, block: memoryview) -> int:
        self._is_receiving = True
        try:
            return await asyncio.get_running_loop().sock_recv_into(self._socket, block)
        except OSError as error:
            raise WorkerEnded("the connection to the decoding process broke") from error
        finally:
            self._is_receiving = False
            if self._is_killed:
                self._socket.close()


def _spawn(theirs: socket.socket) -> subprocess.Popen[bytes]:
    roots = {str(Path(package.__path__[0]).parent): None for package in (mindserve, mindserve_engine)}
    return subprocess.Popen(  # noqa: S603 - our own interpreter and code
        [sys.executable, "-I", "-c", _BOOT, *roots],  # -I: no directory but these and the installed packages
        stdin=theirs.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=_ENVIRONMENT,
        process_group=0,
    )


def _is_possible(kind: MediaKind, reply: Decoded, model: MediaModel, limits: DecodeLimits) -> bool:
    """Whether the shape is one that a decoder makes: the engine relies on it, and memory is given for it."""
    match kind, reply.shape:
        case MediaKind.AUDIO, (num_samples,):
            return 0 < num_samples <= model.max_samples
        case MediaKind.IMAGE, (height, width, 3):
            num_frames, limit = 1, limits.max_image_tokens
        case MediaKind.VIDEO, (num_frames, height, width, 3) if 0 < num_frames <= limits.max_frames:
            limit = limits.max_video_tokens
        case _:
            return False
    side = model.patch_size * model.merge_size
    is_on_grid = height > 0 and width > 0 and height % side == 0 and width % side == 0
    return is_on_grid and model.num_tokens(kind, reply.shape) <= limit
