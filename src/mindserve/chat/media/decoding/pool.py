"""Decodes the media of requests in a few processes that can be stopped and are bounded in memory.

A library that decodes in the server's own process can be neither: one hostile file would stop or end the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Final

from mindserve.chat.media.decoding.decode_limits import DecodeLimits
from mindserve.chat.media.decoding.rejected import MediaRejected, PoolUnavailable
from mindserve.chat.media.decoding.worker_process import WorkerEnded, WorkerProcess
from mindserve_engine.types import MediaItem, MediaKind, MediaModel

NUM_WORKERS: Final = 2
MAX_WAITING: Final = 128
"""Items for which no process is free; a request has up to 20."""
START_S: Final = 30.0
"""For a process to start, on a busy machine; on a quiet one it takes 0.3 s."""
_SMALL_BYTES: Final = 1024 * 1024
"""Hashed without leaving the event loop: it takes less than 1 ms."""
_SLICE_BYTES: Final = 4 * 1024 * 1024
"""Copied before the event loop gets its turn."""
_CLOSED: Final = "media are not decoded any more: the server is closing"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedMedia:
    """A ``MediaItem`` that has no place in a prompt yet."""

    kind: MediaKind
    num_tokens: int
    shape: tuple[int, ...]
    data: bytes
    digest: bytes
    seconds_per_frame: float

    def at(self, start: int) -> MediaItem:
        """``start``: index of its first placeholder."""
        return MediaItem(
            kind=self.kind,
            start=start,
            num_tokens=self.num_tokens,
            shape=self.shape,
            data=self.data,
            digest=self.digest,
            seconds_per_frame=self.seconds_per_frame,
        )


class DecodePool:
    """Processes start when they are first needed, or with ``start``. Belongs to the event loop it is used in."""

    def __init__(
        self,
        model: MediaModel,
        limits: DecodeLimits,
        *,
        num_workers: int = NUM_WORKERS,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._model = model
        self._limits = limits
        self._num_workers = num_workers
        self._max_waiting = max_waiting
        self._places = asyncio.Semaphore(num_workers)
        self._idle: list[WorkerProcess] = []
        self._busy: set[WorkerProcess] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self.num_waiting = 0
        """Items for which no process is free."""
        self.num_lost = 0
        """Processes that a file or a deadline ended, or a caller that left."""

    @property
    def pids(self) -> list[int]:
        """Of the processes that run or start."""
        return [worker.pid for worker in (*self._idle, *self._busy)]

    async def start(self) -> None:
        """Start all processes and wait for them. Raises ``PoolUnavailable``."""
        workers = [self._spawn() for _ in range(self._num_workers)]
        try:
            for worker in workers:
                await self._wait_ready(worker)
        except BaseException:
            for worker in self._busy.intersection(workers):
                self._discard(worker, "another did not start")
            raise
        for worker in workers:
            self._give_back(worker)

    async def decode(self, kind: MediaKind, source: bytes | bytearray | int) -> DecodedMedia:
        """Decode one item, given as bytes or as an open descriptor of a regular file (a memory file, a file below the
        media root), which is read from its start, whatever its position, and remains the caller's.

        Raises ``MediaRejected`` and ``PoolUnavailable``. A caller that is cancelled frees its place at once.
        """
        if self._places.locked() and self.num_waiting >= self._max_waiting:
            raise PoolUnavailable(f"{self.num_waiting} media items wait to be decoded, the limit")
        async with self._place():
            worker = self._idle.pop() if self._idle else None
            if worker is None or not worker.is_alive:
                self._discard(worker, "it ended while it was idle")
                worker = self._spawn()
            self._busy.add(worker)
            await self._wait_ready(worker)
            shape, seconds_per_frame, array = await self._ask(worker, kind, source)
        data, digest = await _sealed(kind, shape, seconds_per_frame, array)
        return DecodedMedia(
            kind=kind,
            num_tokens=self._model.num_tokens(kind, shape),
            shape=shape,
            data=data,
            digest=digest,
            seconds_per_frame=seconds_per_frame,
        )

    async def close(self) -> None:
        """Kill the processes; whoever waits gets ``PoolUnavailable``."""
        self._is_closed = True
        for worker in (*self._idle, *self._busy):
            self._discard(worker, "the pool was closed")
        while self._ending:
            await asyncio.gather(*self._ending)

    @contextlib.asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        """The right to use a process."""
        self.num_waiting += 1
        try:
            await self._places.acquire()
        finally:
            self.num_waiting -= 1
        try:
            if self._is_closed:
                raise PoolUnavailable(_CLOSED)
            yield
        finally:
            self._places.release()

    async def _ask(
        self, worker: WorkerProcess, kind: MediaKind, source: bytes | bytearray | int
    ) -> tuple[tuple[int, ...], float, bytearray]:
        """Shape, seconds per frame and bytes of the array. The process is given back, or replaced."""
        limit_s = self._limits.max_wall_s
        try:
            async with _as_file(source) as file, asyncio.timeout(limit_s):
                reply, array = await worker.ask(kind, file)
        except MediaRejected as error:
            log.debug("%s rejected: %s (%s)", kind, error, error.__cause__)
            self._give_back(worker)
            raise
        except TimeoutError as error:
            self._replace(worker, f"decoding took more than {limit_s:g} s")
            raise MediaRejected(f"the {kind} takes longer to decode than {limit_s:g} s, the limit") from error
        except OSError as error:  # no room for a copy of the bytes
            self._give_back(worker)
            raise PoolUnavailable("media cannot be given to a process that decodes them") from error
        except WorkerEnded as error:
            self._replace(worker, str(error))
            if self._is_closed:
                raise PoolUnavailable(_CLOSED) from error
            raise MediaRejected(f"the {kind} ended the process that decoded it") from error
        except BaseException:
            self._replace(worker, "the caller left")
            raise
        self._give_back(worker)
        return reply.shape, reply.seconds_per_frame, array

    def _spawn(self) -> WorkerProcess:
        if self._is_closed:
            raise PoolUnavailable(_CLOSED)
        try:
            worker = WorkerProcess(self._model, self._limits)
        except OSError as error:
            log.error("no decoding process can be started: %s", error)
            raise PoolUnavailable("no process that decodes media can be started") from error
        self._busy.add(worker)
        return worker

    async def _wait_ready(self, worker: WorkerProcess) -> None:
        try:
            async with asyncio.timeout(START_S):
                await worker.ready()
        except (WorkerEnded, TimeoutError) as error:
            # the next item tries again: one that cannot start now would only be started in vain
            self._discard(worker, f"it did not start: {error or 'it took too long'}")
            raise PoolUnavailable("no process that decodes media can be started") from error
        except BaseException:
            self._replace(worker, "the caller left")
            raise

    def _give_back(self, worker: WorkerProcess) -> None:
        self._busy.discard(worker)
        self._idle.append(worker)

    def _replace(self, worker: WorkerProcess, reason: str) -> None:
        """The next item finds another that has begun to start."""
        self._discard(worker, reason)
        with contextlib.suppress(PoolUnavailable):  # closed, or no room: the next item tries again
            self._give_back(self._spawn())

    def _discard(self, worker: WorkerProcess | None, reason: str) -> None:
        if worker is None:
            return
        self._busy.discard(worker)
        if worker in self._idle:
            self._idle.remove(worker)
        self.num_lost += not self._is_closed
        task = asyncio.create_task(_end(worker, reason))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


async def _end(worker: WorkerProcess, reason: str) -> None:
    status = await worker.kill()
    log.info("decoding process %d: %s (exit status %d)", worker.pid, reason, status)


@contextlib.asynccontextmanager
async def _as_file(source: bytes | bytearray | int) -> AsyncIterator[int]:
    """A descriptor of a file that holds the bytes."""
    if isinstance(source, int):
        yield source
        return
    with _memory_file() as file:
        rest = memoryview(source)
        while rest:
            rest = rest[os.write(file, rest[:_SLICE_BYTES]) :]
            await asyncio.sleep(0)
        yield file


@contextlib.contextmanager
def _memory_file() -> Iterator[int]:
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("media")
        try:
            yield file
        finally:
            os.close(file)
    else:
        with tempfile.TemporaryFile() as temporary:
            yield temporary.fileno()


async def _sealed(
    kind: MediaKind, shape: tuple[int, ...], seconds_per_frame: float, array: bytearray
) -> tuple[bytes, bytes]:
    """The bytes and their digest. That of a process that a file got hold of could be another's."""
    head = f"{kind} {shape} {seconds_per_frame!r}\n".encode()
    if len(array) <= _SMALL_BYTES:
        return _seal(head, array)
    return await asyncio.to_thread(_seal, head, array)


def _seal(head: bytes, array: bytearray) -> tuple[bytes, bytes]:
    digest = hashlib.sha256(head)
    digest.update(array)
    return bytes(array), digest.digest()
