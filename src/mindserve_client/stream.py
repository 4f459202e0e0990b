"""A streamed answer: an iterator of chunks that closes its connection at the end, on any error, and with its block."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import aclosing, closing
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

import httpx2

from mindserve_client.answers import DONE, parse_event
from mindserve_client.base import ContractModel
from mindserve_client.errors import InvalidResponse, StreamIncomplete
from mindserve_client.sse import EventDecoder
from mindserve_client.transport import told_as_connection_errors

ChunkT = TypeVar("ChunkT", bound=ContractModel)

_MEDIA_TYPE: Final = "text/event-stream"
_NO_END: Final = "the stream ended without its end mark; what came may not be all"


class _Reader(Generic[ChunkT]):
    """What both kinds of stream have in common: bytes in, chunks out."""

    def __init__(self, chunk: type[ChunkT], max_event_bytes: int) -> None:
        self._chunk = chunk
        self._decoder = EventDecoder(max_event_bytes)
        self.is_done = False

    def feed(self, piece: bytes) -> Iterator[ChunkT]:
        """The chunks that ``piece`` completes, up to the end mark."""
        for event in () if self.is_done else self._decoder.feed(piece):
            if event.data == DONE:
                self.is_done = True
                return
            yield parse_event(self._chunk, event.data)


def _check(response: httpx2.Response) -> None:
    media_type = response.headers.get("content-type", "")
    if not media_type.startswith(_MEDIA_TYPE):
        raise InvalidResponse(f"a stream was asked for, and what came is {media_type or 'of no type'}")


class Stream(Generic[ChunkT]):
    """Chunks as they come. Iterate it, or use it as a context manager to leave before the end.

    Raises ``StreamFailed`` when the server fails in the middle, ``StreamIncomplete`` when it ends without its end mark,
    ``APIConnectionError`` when the connection breaks. It is never begun again.
    """

    def __init__(self, response: httpx2.Response, chunk: type[ChunkT], max_event_bytes: int) -> None:
        self.response = response
        self._chunks = self._read(_Reader(chunk, max_event_bytes))

    def __iter__(self) -> Iterator[ChunkT]:
        return self

    def __next__(self) -> ChunkT:
        return next(self._chunks)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; a server that is still generating stops. May be called again."""
        self._chunks.close()
        self.response.close()

    def _read(self, reader: _Reader[ChunkT]) -> Generator[ChunkT, None, None]:
        with closing(self.response), told_as_connection_errors():
            _check(self.response)
            try:
                for piece in self.response.iter_bytes():
                    if reader.is_done:
                        break
                    yield from reader.feed(piece)
            except httpx2.TransportError:
                if not reader.is_done:  # what follows the end mark is nobody's loss
                    raise
            if not reader.is_done:
                raise StreamIncomplete(_NO_END)


class AsyncStream(Generic[ChunkT]):
    """As ``Stream``, with ``async for`` and ``async with``."""

    def __init__(self, response: httpx2.Response, chunk: type[ChunkT], max_event_bytes: int) -> None:
        self.response = response
        self._chunks = self._read(_Reader(chunk, max_event_bytes))

    def __aiter__(self) -> AsyncIterator[ChunkT]:
        return self

    async def __anext__(self) -> ChunkT:
        return await anext(self._chunks)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; a server that is still generating stops. May be called again."""
        await self._chunks.aclose()
        await self.response.aclose()

    async def _read(self, reader: _Reader[ChunkT]) -> AsyncGenerator[ChunkT, None]:
        async with aclosing(self.response):
            with told_as_connection_errors():
                _check(self.response)
                try:
                    async for piece in self.response.aiter_bytes():
                        if reader.is_done:
                            break
                        for chunk in reader.feed(piece):
                            yield chunk
                except httpx2.TransportError:
                    if not reader.is_done:
                        raise
                if not reader.is_done:
                    raise StreamIncomplete(_NO_END)
