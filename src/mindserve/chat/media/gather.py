"""The bytes of all media of a request, from wherever they are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from mindserve.chat.media.budget import ByteBudget, Lease
from mindserve.chat.media.faults import MediaFault
from mindserve.chat.media.fetch import Fetcher
from mindserve.chat.media.inline import Inline, decode_inline
from mindserve.chat.media.limits import PARALLEL_FETCHES, MediaLimits
from mindserve.chat.media.local import read_local
from mindserve.chat.media.refs import Local, MediaRef, refused
from mindserve.chat.media.together import together
from mindserve.observe.logs import fields
from mindserve.observe.media import MediaTally
from mindserve_engine.types import MediaKind

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)
_THREADS: Final = 4


@dataclass(frozen=True, slots=True)
class MediaBytes:
    """An item as it came: neither its format nor its content has been looked at."""

    kind: MediaKind
    data: bytearray
    i: int
    j: int
    field: str
    """Its place in the request, for error texts."""


class MediaSource:
    """What gathering needs, made once for a server: limits, the budget of all requests, the fetcher, threads for
    Base64, and others for files: reading those may hang where their folder is mounted from elsewhere."""

    def __init__(
        self,
        limits: MediaLimits,
        budget: ByteBudget,
        fetcher: Fetcher | None = None,
        tally: MediaTally | None = None,
    ) -> None:
        self.limits = limits
        self.budget = budget
        self.fetcher = fetcher or Fetcher(limits)
        self.tally = tally or MediaTally()
        self._decoders = ThreadPoolExecutor(_THREADS, thread_name_prefix="media")
        self._readers = ThreadPoolExecutor(_THREADS, thread_name_prefix="media-files")

    async def decode(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._decoders, work)

    async def read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    def close(self) -> None:
        """Threads that work end by themselves; what waits for one is dropped."""
        self.fetcher.close()
        for threads in (self._decoders, self._readers):
            threads.shutdown(wait=False, cancel_futures=True)


@asynccontextmanager
async def gather(refs: list[MediaRef], source: MediaSource) -> AsyncIterator[list[MediaBytes]]:
    """The items of ``refs``, in their order; their bytes count towards the budget until the block is left.

    ``refs`` is emptied: a text in Base64 is let go as soon as it is decoded. Raises ``RequestRefused`` as soon as one
    cannot be had, naming it (the others are given up), or OVERLOADED when the budget has no room.
    """
    lease = source.budget.lease(source.limits.total)
    try:
        yield await _all(refs, source, lease)
    finally:
        lease.release()


async def _all(refs: list[MediaRef], source: MediaSource, lease: Lease) -> list[MediaBytes]:
    turns = asyncio.Semaphore(PARALLEL_FETCHES)
    works = [_item(ref, source, lease, turns) for ref in refs]
    refs.clear()
    return await together(works)


async def _item(ref: MediaRef, source: MediaSource, lease: Lease, turns: asyncio.Semaphore) -> MediaBytes:
    try:
        data = await _data(ref, source, lease, turns)
    except MediaFault as fault:
        source.tally.refuse(ref.kind)
        _LOG.info("media refused", extra=fields(field=ref.field, reason=fault.reason))
        raise refused(ref.field, fault) from None
    return MediaBytes(ref.kind, data, ref.i, ref.j, ref.field)


async def _data(ref: MediaRef, source: MediaSource, lease: Lease, turns: asyncio.Semaphore) -> bytearray:
    origin = ref.source
    if isinstance(origin, Inline):
        lease.take(origin.num_bytes)
        return await source.decode(lambda: decode_inline(origin, lease.is_over))
    if isinstance(origin, Local):
        return await source.read(_reader(source.limits.root, origin, ref, lease))
    async with turns:
        return await source.fetcher.fetch(origin, ref.limit, lease.take)


def _reader(root: str, local: Local, ref: MediaRef, lease: Lease) -> Callable[[], bytearray]:
    return lambda: read_local(root, local.steps, ref.limit, take=lease.take, is_abandoned=lease.is_over)
