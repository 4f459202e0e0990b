"""Both clients behind one face, so that every test asks both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

from mindserve_client import AsyncClient, Client
from tests.serving import HELLO


class Asker(Protocol):
    """A client; its requests are ``HELLO`` where nothing else is said."""

    async def whole(self, **params: Any) -> Any:
        """The answer."""

    async def chunks(self, into: list[Any], **params: Any) -> None:
        """All chunks, as they come."""

    async def first_chunk(self, **params: Any) -> Any:
        """One chunk; then the stream is left."""

    async def no_chunk(self, **params: Any) -> Any:
        """A stream that was closed before anything was read of it."""

    async def models(self) -> Any:
        """The list of models."""

    async def model(self, name: str) -> Any:
        """One model."""


class _Sync:
    def __init__(self, client: Any) -> None:
        self._client = client

    async def whole(self, **params: Any) -> Any:
        return await asyncio.to_thread(self._client.chat.completions.create, **{**HELLO, **params})

    async def chunks(self, into: list[Any], **params: Any) -> None:
        def run() -> None:
            for chunk in self._client.chat.completions.create(**{**HELLO, **params}, stream=True):
                into.append(chunk)  # noqa: PERF402 - kept when the stream fails

        await asyncio.to_thread(run)

    async def first_chunk(self, **params: Any) -> Any:
        def run() -> Any:
            with self._client.chat.completions.create(**{**HELLO, **params}, stream=True) as stream:
                return next(stream)

        return await asyncio.to_thread(run)

    async def no_chunk(self, **params: Any) -> Any:
        stream = await asyncio.to_thread(self._client.chat.completions.create, **{**HELLO, **params}, stream=True)
        stream.close()
        return stream

    async def models(self) -> Any:
        return await asyncio.to_thread(self._client.models.list)

    async def model(self, name: str) -> Any:
        return await asyncio.to_thread(self._client.models.retrieve, name)


class _Async:
    def __init__(self, client: Any) -> None:
        self._client = client

    async def whole(self, **params: Any) -> Any:
        return await self._client.chat.completions.create(**{**HELLO, **params})

    async def chunks(self, into: list[Any], **params: Any) -> None:
        async for chunk in await self._client.chat.completions.create(**{**HELLO, **params}, stream=True):
            into.append(chunk)  # noqa: PERF401 - kept when the stream fails

    async def first_chunk(self, **params: Any) -> Any:
        async with await self._client.chat.completions.create(**{**HELLO, **params}, stream=True) as stream:
            return await anext(stream)

    async def no_chunk(self, **params: Any) -> Any:
        stream = await self._client.chat.completions.create(**{**HELLO, **params}, stream=True)
        await stream.close()
        return stream

    async def models(self) -> Any:
        return await self._client.models.list()

    async def model(self, name: str) -> Any:
        return await self._client.models.retrieve(name)


KINDS = ("sync", "async")


@asynccontextmanager
async def asking(kind: str, url: str, **options: Any) -> AsyncIterator[Asker]:
    """A client of ``kind`` for the length of the block."""
    if kind == "sync":
        with Client(url, **options) as client:
            yield _Sync(client)
    else:
        async with AsyncClient(url, **options) as other:
            yield _Async(other)
