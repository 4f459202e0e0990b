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
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from mindserve.chat.media.decoding.decode_limits import DecodeLimits
from mindserve.chat.media.decoding.rejected import MediaRejected, PoolUnavailable
from mindserve.chat.media.decoding.worker_process import WorkerEnded, WorkerProcess
from mindserve.observe.media import MediaTally
from mindserve_engine.types import MediaItem, MediaKind, MediaModel

NUM_WORKERS: Final = 2
LEAVING_S: Final = 1.0
"""What a process gets to end the item of a caller that left. Most items take less, and a process that is killed has to
be started again, which takes longer than they do."""
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


class _Answer(NamedTuple):
    shape: tuple[int, ...]
    seconds_per_frame: float
    array: bytearray


class DecodePool:
    """Processes start when they are first needed, or with ``start``. Belongs to the event loop it is used in."""

    def __init__(
        self,
        model: MediaModel,
        limits: DecodeLimits,
        *,
        num_workers: int = NUM_WORKERS,
        tally: MediaTally | None = None,
    ) -> None:
        """Who waits is not bounded here: a request has up to 20 items, and connections are bounded."""
        self._model = model
        self._limits = limits
        self._num_workers = num_workers
        self.tally = tally or MediaTally()
        self._places = asyncio.Semaphore(num_workers)
        self._idle: list[WorkerProcess] = []
        self._busy: set[WorkerProcess] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._left: set[asyncio.Task[_Answer]] = set()
        self._is_closed = False

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

    async def decode(self, kind: MediaKind, data: bytes | bytearray) -> DecodedMedia:
        """Decode one item.

        Raises ``MediaRejected`` and ``PoolUnavailable``. A caller that is cancelled while it waits is forgotten; later,
        its place is free within ``LEAVING_S``.
        """
        with self.tally.waiting():
            await self._places.acquire()
        work = asyncio.create_task(self._use(kind, data))
        work.add_done_callback(lambda _: self._places.release())
        try:
            shape, seconds_per_frame, array = await asyncio.shield(work)
        except asyncio.CancelledError:
            self._leave(work)
            raise
        finally:
            del work  # what it raised leads to this frame, and the frame to the bytes: no cycle keeps them
        values, digest = await _sealed(kind, shape, seconds_per_frame, array)
        return DecodedMedia(
            kind=kind,
            num_tokens=self._model.num_tokens(kind, shape),
            shape=shape,
            data=values,
            digest=digest,
            seconds_per_frame=seconds_per_frame,
        )

    async def close(self) -> None:
        """Kill the processes; whoever waits gets ``PoolUnavailable``."""
        self._is_closed = True
        for worker in (*self._idle, *self._busy):
            self._discard(worker, "the pool was closed")
        while self._ending or self._left:
            await asyncio.gather(*self._ending, *self._left, return_exceptions=True)

    def _leave(self, work: asyncio.Task[_Answer]) -> None:
        """The caller left while ``work`` was done for it."""
        self._left.add(work)
        timer = asyncio.get_running_loop().call_later(LEAVING_S, work.cancel)

        def forget(done: asyncio.Task[_Answer]) -> None:
            timer.cancel()
            self._left.discard(done)
            if not done.cancelled():
                done.exception()  # nobody is left to whom it matters

        work.add_done_callback(forget)

    async def _use(self, kind: MediaKind, data: bytes | bytearray) -> _Answer:
        """What a process makes of the item. The caller has a place."""
        if self._is_closed:
            raise PoolUnavailable(_CLOSED)
        worker = self._idle.pop() if self._idle else None
        if worker is None or not worker.is_alive:
            self._discard(worker, "it ended while it was idle")
            worker = self._spawn()
        self._busy.add(worker)
        await self._wait_ready(worker)
        began = time.monotonic()
        self.tally.num_busy += 1
        try:
            return await self._ask(worker, kind, data)
        finally:
            self.tally.num_busy -= 1
            self.tally.decode_s.add(time.monotonic() - began)

    async def _ask(self, worker: WorkerProcess, kind: MediaKind, data: bytes | bytearray) -> _Answer:
        """The process is given back, or replaced."""
        limit_s = self._limits.max_wall_s
        try:
            async with _as_file(data) as file, asyncio.timeout(limit_s):
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
        return _Answer(reply.shape, reply.seconds_per_frame, array)

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
        self.tally.num_replaced += not self._is_closed
        task = asyncio.create_task(_end(worker, reason))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


async def _end(worker: WorkerProcess, reason: str) -> None:
    status = await worker.kill()
    log.info("decoding process %d: %s (exit status %d)", worker.pid, reason, status)


@contextlib.asynccontextmanager
async def _as_file(data: bytes | bytearray) -> AsyncIterator[int]:
    """A descriptor of a file that holds the bytes."""
    with _memory_file() as file:
        rest = memoryview(data)
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
