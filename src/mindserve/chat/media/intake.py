"""The way of the media of a request from where they are to what the model sees: gathered, decoded, accounted for."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from mindserve.chat.media.budget import ByteBudget, Lease
from mindserve.chat.media.decoding.decode_limits import DecodeLimits
from mindserve.chat.media.decoding.pool import DecodedMedia, DecodePool
from mindserve.chat.media.decoding.rejected import MediaRejected, PoolUnavailable
from mindserve.chat.media.faults import MediaFault
from mindserve.chat.media.fetch import Fetcher
from mindserve.chat.media.gather import MediaBytes, MediaSource, gather
from mindserve.chat.media.limits import media_limits
from mindserve.chat.media.refs import MediaRef, refused
from mindserve.chat.media.together import together
from mindserve.config.settings import DecodeSettings, MediaSettings
from mindserve.errors import RefusalKind, RequestRefused, StartupError
from mindserve.observe.logs import fields
from mindserve.observe.media import MediaTally
from mindserve_engine.types import MediaModel

RETRY_AFTER_S: Final = 5
"""About the time that decoding the items of other requests takes."""

_LOG: Final = logging.getLogger(__name__)


class MediaIntake:
    """Threads, connections and processes come with the first item, or with ``start``: a server of text has none."""

    def __init__(
        self,
        settings: MediaSettings,
        budget: ByteBudget,
        fetcher: Fetcher | None = None,
        tally: MediaTally | None = None,
    ) -> None:
        self.limits = media_limits(settings)
        self._decode = settings.decode
        self._budget = budget
        self._fetcher = fetcher
        self.tally = tally or MediaTally()
        self._source: MediaSource | None = None
        self._pool: DecodePool | None = None
        self._is_closed = False

    async def start(self, model: MediaModel) -> None:
        """Be ready for the first item. Raises ``StartupError``."""
        self._gathering()
        try:
            await self._decoding(model).start()
        except PoolUnavailable as error:
            raise StartupError(f"media: {error}") from error

    def lease(self) -> Lease:
        """Room for the decoded items of one request."""
        return self._budget.lease(self.limits.total)

    async def take(self, refs: list[MediaRef], model: MediaModel, lease: Lease) -> list[DecodedMedia]:
        """The items of ``refs``, which is emptied, in their order. The files are let go before this returns; what was
        made of them counts towards ``lease``.

        Raises ``RequestRefused``: naming the first item that cannot be had or decoded, or for want of room.
        """
        if self._is_closed:
            raise _unavailable("media are not taken any more: the server is closing")
        async with gather(refs, self._gathering()) as items:
            pool = self._decoding(model)
            # No more than there are processes: the items of other requests get their turn in between.
            turns = asyncio.Semaphore(self._decode.workers)
            return await together(_decoded(item, pool, lease, turns) for item in items)

    async def close(self) -> None:
        """Idempotent."""
        self._is_closed = True
        if self._source is not None:
            self._source.close()
        if self._pool is not None:
            await self._pool.close()

    def _gathering(self) -> MediaSource:
        if self._source is None:
            self._source = MediaSource(self.limits, self._budget, self._fetcher, self.tally)
        return self._source

    def _decoding(self, model: MediaModel) -> DecodePool:
        if self._pool is None:
            limits = decode_limits(self._decode)
            self._pool = DecodePool(model, limits, num_workers=self._decode.workers, tally=self.tally)
        return self._pool


def decode_limits(settings: DecodeSettings) -> DecodeLimits:
    return DecodeLimits(
        max_wall_s=settings.timeout_s,
        max_cpu_s=settings.cpu_time_s,
        max_memory_bytes=settings.memory_bytes,
        max_image_pixels=settings.max_image_pixels,
        max_image_tokens=settings.max_image_tokens,
        max_frames=settings.max_video_frames,
        frames_per_s=settings.video_fps,
        max_video_tokens=settings.max_video_tokens,
        truncate_audio=settings.truncate_audio,
    )


async def _decoded(item: MediaBytes, pool: DecodePool, lease: Lease, turns: asyncio.Semaphore) -> DecodedMedia:
    with pool.tally.waiting():
        await turns.acquire()
    try:
        decoded = await pool.decode(item.kind, item.data)
        lease.take(len(decoded.data))
    except MediaRejected as error:
        pool.tally.refuse(item.kind)
        _LOG.info("media refused", extra=fields(field=item.field, reason=str(error)))
        raise RequestRefused(f"{item.field}: {error}", field=item.field) from error
    except MediaFault as fault:
        raise refused(item.field, fault) from None
    except PoolUnavailable as error:
        raise _unavailable(str(error)) from error
    finally:
        turns.release()
    return decoded


def _unavailable(reason: str) -> RequestRefused:
    return RequestRefused(reason, kind=RefusalKind.UNAVAILABLE, retry_after_s=RETRY_AFTER_S)
