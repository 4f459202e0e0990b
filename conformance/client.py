"""Sends requests and takes answers within bounds of time and size, whatever the server does.

No answer of a server raises: what went wrong is told in the exchange. Content encodings are neither asked for nor
undone, so a small answer cannot grow.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

import httpx2

from conformance.sse import Frame, FrameTooLong, SseReader

MAX_FRAME_BYTES: Final = 8 << 20
NUM_TRIES: Final = 4
MAX_RETRY_AFTER_S: Final = 5.0
MAX_SILENCES: Final = 5
"""After so many requests in a row that got no answer at all, the server is no longer asked."""


class Trouble(StrEnum):
    """Why an answer is not complete. Each is the id of an invariant, but for ``UNREACHABLE``."""

    UNREACHABLE = "unreachable"
    BROKEN = "answer-complete"
    SLOW = "answer-in-time"
    LARGE = "answer-size"
    ENCODED = "answer-not-encoded"


@dataclass(frozen=True)
class Sent:
    """What goes over the wire."""

    method: str
    path: str
    headers: Mapping[str, str]
    content: bytes | None
    without: tuple[str, ...] = ()
    """Headers of the run that this request does not have."""


@dataclass(frozen=True)
class Exchange:
    """A request and what came back."""

    sent: Sent
    status: int | None = None
    """None: no answer began."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case."""
    body: bytes = b""
    frames: tuple[Frame, ...] = ()
    """Of a stream."""
    rest: bytes = b""
    """What came after a stream's last frame."""
    trouble: Trouble | None = None
    reason: str = ""
    """What happened, when there is trouble."""
    duration_s: float = 0.0

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower() == "text/event-stream"


@dataclass(frozen=True, kw_only=True)
class Limits:
    request_timeout_s: float
    max_body_bytes: int
    max_events: int
    concurrency: int
    rate: float | None = None


class Client:
    """One server's client: paced and bounded."""

    def __init__(self, http: httpx2.AsyncClient, limits: Limits) -> None:
        self._http = http
        self._limits = limits
        self._places = asyncio.Semaphore(limits.concurrency)
        self._next_start = 0.0
        self._num_silences = 0

    async def send(self, sent: Sent) -> Exchange:
        """One exchange; an overloaded server is asked again, in its own time."""
        exchange = await self._send_heard(sent)
        for _ in range(NUM_TRIES - 1):
            wait_s = _retry_after_s(exchange)
            if wait_s is None:
                break
            await asyncio.sleep(wait_s)
            exchange = await self._send_heard(sent)
        return exchange

    async def _send_heard(self, sent: Sent) -> Exchange:
        """A server may close a kept connection just as it is used again (RFC 9112, 9.5): then another one is tried."""
        exchange = await self._send_once(sent)
        if exchange.trouble is Trouble.BROKEN and exchange.status is None:
            exchange = await self._send_once(sent)
        self._num_silences = 0 if exchange.status is not None else self._num_silences + 1
        return exchange

    async def _send_once(self, sent: Sent) -> Exchange:
        async with self._places:
            if self._num_silences >= MAX_SILENCES:
                return Exchange(
                    sent, trouble=Trouble.UNREACHABLE, reason=f"{MAX_SILENCES} requests in a row got no answer"
                )
            await self._pace()
            start = time.monotonic()
            answer = _Answer(sent, self._limits)
            try:
                async with asyncio.timeout(self._limits.request_timeout_s):
                    await self._exchange(sent, answer)
            except (TimeoutError, httpx2.TimeoutException):
                answer.fail(Trouble.SLOW, f"not complete within {self._limits.request_timeout_s:g} s")
            except (httpx2.ConnectError, httpx2.UnsupportedProtocol, httpx2.ProxyError) as error:
                answer.fail(Trouble.UNREACHABLE, f"{error}" or type(error).__name__)
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                answer.fail(Trouble.BROKEN, f"{type(error).__name__}: {error}")
            return replace(answer.exchange(), duration_s=time.monotonic() - start)

    async def _exchange(self, sent: Sent, answer: _Answer) -> None:
        request = self._http.build_request(sent.method, sent.path, headers=dict(sent.headers), content=sent.content)
        for name in sent.without:
            request.headers.pop(name, None)
        response = await self._http.send(request, stream=True)
        try:
            answer.begin(response.status_code, {name.lower(): value for name, value in response.headers.items()})
            if answer.goes_on:
                async for piece in response.aiter_raw():
                    answer.take(piece)
                    if not answer.goes_on:
                        break
        finally:
            await response.aclose()

    async def _pace(self) -> None:
        """Requests start no faster than ``rate``."""
        if self._limits.rate is None:
            return
        now = time.monotonic()
        start = max(now, self._next_start)
        self._next_start = start + 1 / self._limits.rate
        await asyncio.sleep(start - now)


class _Answer:
    """An answer while it comes."""

    def __init__(self, sent: Sent, limits: Limits) -> None:
        self._sent = sent
        self._limits = limits
        self._status: int | None = None
        self._headers: Mapping[str, str] = {}
        self._body = bytearray()
        self._frames: list[Frame] = []
        self._reader: SseReader | None = None
        self._trouble: tuple[Trouble, str] | None = None

    @property
    def goes_on(self) -> bool:
        return self._trouble is None

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        self._status, self._headers = status, headers
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            self.fail(Trouble.ENCODED, f"Content-Encoding: {encoding[:60]}, though only identity was accepted")
        if self.exchange().is_stream:
            self._reader = SseReader(MAX_FRAME_BYTES)

    def take(self, piece: bytes) -> None:
        self._body += piece
        if len(self._body) > self._limits.max_body_bytes:
            del self._body[self._limits.max_body_bytes :]
            self.fail(Trouble.LARGE, f"more than {self._limits.max_body_bytes} bytes")
        elif self._reader is not None:
            try:
                self._frames += self._reader.feed(piece)
            except FrameTooLong as error:
                self.fail(Trouble.LARGE, str(error))
            if len(self._frames) > self._limits.max_events:
                self.fail(Trouble.LARGE, f"more than {self._limits.max_events} events")

    def fail(self, trouble: Trouble, reason: str) -> None:
        self._trouble = self._trouble or (trouble, reason)

    def exchange(self) -> Exchange:
        trouble, reason = self._trouble or (None, "")
        return Exchange(
            self._sent, self._status, self._headers, bytes(self._body), tuple(self._frames),
            self._reader.rest if self._reader else b"", trouble, reason,
        )  # fmt: skip


def _retry_after_s(exchange: Exchange) -> float | None:
    """None: it makes no sense to ask again."""
    if exchange.status not in (429, 503) or "retry-after" not in exchange.headers:
        return None
    try:
        wait_s = float(exchange.headers["retry-after"])
    except ValueError:
        return None
    return wait_s if 0 <= wait_s <= MAX_RETRY_AFTER_S else None


@asynccontextmanager
async def open_client(
    base_url: str, limits: Limits, headers: Mapping[str, str], *, verify: bool
) -> AsyncIterator[Client]:
    """A client for ``base_url``. Neither proxies nor redirects are followed: the answer is the server's."""
    sent = {"Accept-Encoding": "identity", "User-Agent": "mindserve-conformance", **headers}
    timeout = httpx2.Timeout(limits.request_timeout_s)
    pool = httpx2.Limits(max_connections=limits.concurrency)
    async with httpx2.AsyncClient(
        base_url=base_url, headers=sent, timeout=timeout, limits=pool, verify=verify, trust_env=False
    ) as http:
        yield Client(http, limits)
