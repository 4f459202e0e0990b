"""Sending one request, again where that may help, until the head of an answer with status 200 is there."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import httpx2

from mindserve_client import retry
from mindserve_client.answers import status_error
from mindserve_client.errors import APIConnectionError, APITimeoutError, InvalidResponse
from mindserve_client.options import Options, Timeout

MAX_ERROR_BODY_BYTES: Final = 1024 * 1024
"""More of an error's body is not read."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request that can be sent more than once."""

    method: str
    url: str
    headers: httpx2.Headers
    body: bytes | None
    timeout: Timeout

    def build(self, client: httpx2.Client | httpx2.AsyncClient) -> httpx2.Request:
        """A fresh request of httpx2."""
        return client.build_request(
            self.method, self.url, headers=self.headers, content=self.body, timeout=self.timeout
        )


@contextmanager
def told_as_connection_errors() -> Iterator[None]:
    """What httpx2 raises while it sends or reads becomes this package's."""
    try:
        yield
    except httpx2.TimeoutException as error:
        raise APITimeoutError(f"timeout: {type(error).__name__} {error}".rstrip()) from error
    except httpx2.TransportError as error:
        raise APIConnectionError(f"{type(error).__name__}: {error}") from error
    except httpx2.DecodingError as error:
        raise InvalidResponse(f"the answer is not encoded as its Content-Encoding says: {error}") from error


class Transport:
    """Sends over a ``httpx2.Client``."""

    def __init__(self, client: httpx2.Client, options: Options) -> None:
        self._client = client
        self._options = options

    def open(self, call: Call) -> httpx2.Response:
        """The answer, its body unread; whoever gets it closes it. Raises ``APIStatusError``, ``APIConnectionError``."""
        with told_as_connection_errors():
            for attempt in range(self._options.max_retries):
                wait_s = self._attempt(call, attempt)
                if isinstance(wait_s, httpx2.Response):
                    return wait_s
                time.sleep(wait_s)
            return self._last(self._client.send(call.build(self._client), stream=True))

    def fetch(self, call: Call) -> bytes:
        """The whole body of the answer. Raises as ``open``."""
        response = self.open(call)
        with told_as_connection_errors():
            try:
                return response.read()
            finally:
                response.close()

    def _attempt(self, call: Call, attempt: int) -> httpx2.Response | float:
        """An answer, or the seconds until another attempt makes sense."""
        jitter = random.random()  # noqa: S311 - no secret
        try:
            response = self._client.send(call.build(self._client), stream=True)
        except httpx2.TransportError as fault:
            wait_s = retry.wait_after_fault(fault, attempt, jitter)
            if wait_s is None:
                raise
            return wait_s
        wait_s = retry.wait_after_status(response.status_code, response.headers, attempt, jitter)
        if wait_s is None:
            return self._last(response)
        response.close()
        return wait_s

    def _last(self, response: httpx2.Response) -> httpx2.Response:
        if response.status_code == httpx2.codes.OK:
            return response
        body = bytearray()
        try:
            for piece in response.iter_bytes():
                body += piece
                if len(body) > MAX_ERROR_BODY_BYTES:
                    break
        finally:
            response.close()
        raise status_error(response.status_code, response.headers, bytes(body))


class AsyncTransport:
    """Sends over a ``httpx2.AsyncClient``."""

    def __init__(self, client: httpx2.AsyncClient, options: Options) -> None:
        self._client = client
        self._options = options

    async def open(self, call: Call) -> httpx2.Response:
        """As ``Transport.open``."""
        with told_as_connection_errors():
            for attempt in range(self._options.max_retries):
                wait_s = await self._attempt(call, attempt)
                if isinstance(wait_s, httpx2.Response):
                    return wait_s
                await asyncio.sleep(wait_s)
            return await self._last(await self._client.send(call.build(self._client), stream=True))

    async def fetch(self, call: Call) -> bytes:
        """As ``Transport.fetch``."""
        response = await self.open(call)
        with told_as_connection_errors():
            try:
                return await response.aread()
            finally:
                await response.aclose()

    async def _attempt(self, call: Call, attempt: int) -> httpx2.Response | float:
        jitter = random.random()  # noqa: S311 - no secret
        try:
            response = await self._client.send(call.build(self._client), stream=True)
        except httpx2.TransportError as fault:
            wait_s = retry.wait_after_fault(fault, attempt, jitter)
            if wait_s is None:
                raise
            return wait_s
        wait_s = retry.wait_after_status(response.status_code, response.headers, attempt, jitter)
        if wait_s is None:
            return await self._last(response)
        await response.aclose()
        return wait_s

    async def _last(self, response: httpx2.Response) -> httpx2.Response:
        if response.status_code == httpx2.codes.OK:
            return response
        body = bytearray()
        try:
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > MAX_ERROR_BODY_BYTES:
                    break
        finally:
            await response.aclose()
        raise status_error(response.status_code, response.headers, bytes(body))
