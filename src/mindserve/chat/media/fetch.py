"""Files from allowed hosts over HTTP(S).

The name is looked up once, every address it has is vetted, and exactly those are dialled: the URL that the HTTP client
gets still has the name, so that Host, SNI and the check of the certificate are the ordinary ones, while the client's
network backend goes to the vetted addresses alone. A connection serves one file. Nothing is followed: no redirect, no
proxy of the environment, no compression.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NoReturn, TypeAlias

import httpcore2

from mindserve.chat.media.addresses import literal, may_dial
from mindserve.chat.media.faults import MediaFault
from mindserve.chat.media.limits import MediaLimits, SizeLimit
from mindserve.chat.media.local import too_large
from mindserve.chat.media.remote import Remote

Resolver: TypeAlias = Callable[[str, int], Awaitable[list[str]]]
"""From a host and a port to IP addresses as text; raises ``OSError``."""

_DNS_THREADS: Final = 16
_DIALLED: Final = 4
"""Addresses of a host that are tried, one after the other."""
_PIECES_A_TURN: Final = 64
_FREE_PIECES: Final = 1000
_LEAST_PIECE: Final = 64
"""Bytes of a piece on average, beyond the first thousand pieces: what they cost goes by their number."""
_USER_AGENT: Final = b"mindserve"
_OK: Final = 200
_UNREACHABLE: Final = "cannot be fetched: its host cannot be reached"
"""One text for whatever lies before HTTP: name, address, connection and certificate."""


class Resolving:
    """The system's resolver. It cannot be interrupted, so it has threads of its own, and a name takes one of them at a
    time, however many ask for it: name servers that do not answer for one host hold up no other."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_DNS_THREADS, thread_name_prefix="resolve")
        self._under_way: dict[tuple[str, int], asyncio.Future[list[str]]] = {}

    async def __call__(self, host: str, port: int) -> list[str]:
        asked = self._under_way.get((host, port))
        if asked is None:
            asked = asyncio.get_running_loop().run_in_executor(self._threads, _look_up, host, port)
            self._under_way[host, port] = asked
            asked.add_done_callback(lambda ended: self._end(host, port, ended))
        return list(await asyncio.shield(asked))

    def _end(self, host: str, port: int, asked: asyncio.Future[list[str]]) -> None:
        del self._under_way[host, port]
        if not asked.cancelled():
            asked.exception()  # those who asked may all have left

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str, port: int) -> list[str]:
    return [str(address[0]) for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


class Pinned(httpcore2.AsyncNetworkBackend):
    """Dials vetted addresses in place of the one name it was made for, and nothing else."""

    def __init__(self, host: str, addresses: list[str], dialler: httpcore2.AsyncNetworkBackend) -> None:
        self._host = host
        self._addresses = addresses
        self._dialler = dialler

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's signature
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        if host.strip("[]") != self._host:
            raise httpcore2.ConnectError("another host than the vetted one")
        failure: Exception = httpcore2.ConnectError("no address")
        for address in self._addresses[:_DIALLED]:
            try:
                return await self._dialler.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's signature
        socket_options: Iterable[Any] | None = None,
    ) -> NoReturn:
        raise httpcore2.ConnectError("no sockets of this machine")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Fetcher:
    """Fetches files within the limits. ``resolve``, ``dialler`` and ``ssl_context`` are the system's unless given;
    vetting is the same whatever they are."""

    def __init__(
        self,
        limits: MediaLimits,
        *,
        resolve: Resolver | None = None,
        dialler: httpcore2.AsyncNetworkBackend | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._limits = limits
        self._resolving = Resolving()
        self._resolve = resolve or self._resolving
        self._dialler = dialler or httpcore2.AnyIOBackend()
        self._ssl_context = ssl_context or ssl.create_default_context()

    def close(self) -> None:
        self._resolving.close()

    async def fetch(self, remote: Remote, limit: SizeLimit, take: Callable[[int], None]) -> bytearray:
        """The file. ``take`` is told of bytes as they come. Raises ``MediaFault`` and what ``take`` raises."""
        seconds = self._limits.fetch_s
        try:
            async with asyncio.timeout(seconds):
                addresses = await self._addresses(remote)
                return await self._download(remote, addresses, limit, take)
        except TimeoutError:
            raise MediaFault(f"did not arrive within {seconds:g} s (setting fetchTimeout)") from None
        except httpcore2.ReadTimeout:
            silence = f"{self._limits.read_s:g} s (setting readTimeout)"
            raise MediaFault(f"cannot be fetched: its host sent nothing for {silence}") from None
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout, ssl.SSLError) as error:
            raise MediaFault(_UNREACHABLE, _name(error)) from None
        except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError) as error:
            text = "cannot be fetched: its host broke off, or sent what is no valid HTTP"
            raise MediaFault(text, _name(error)) from None

    async def _addresses(self, remote: Remote) -> list[str]:
        """Every one of them may be dialled; one that may not condemns the name. Raises ``MediaFault``."""
        if literal(remote.host) is not None:
            return [remote.host]  # vetted when the URL was read
        try:
            async with asyncio.timeout(self._limits.connect_s):
                found = list(dict.fromkeys(await self._resolve(remote.host, remote.port)))
        except TimeoutError:
            raise MediaFault(_UNREACHABLE, "the name servers did not answer in time") from None
        except (OSError, UnicodeError) as error:
            raise MediaFault(_UNREACHABLE, _name(error)) from None
        refused = [address for address in found if not may_dial(address, self._limits.allowed_networks)]
        if refused or not found:
            raise MediaFault(_UNREACHABLE, f"addresses that are not public: {', '.join(refused) or 'none at all'}")
        return found

    async def _download(
        self, remote: Remote, addresses: list[str], limit: SizeLimit, take: Callable[[int], None]
    ) -> bytearray:
        host = f"[{remote.host}]" if ":" in remote.host else remote.host
        async with (
            httpcore2.AsyncConnectionPool(
                ssl_context=self._ssl_context,
                max_connections=1,
                max_keepalive_connections=0,
                http2=False,
                network_backend=Pinned(remote.host, addresses, self._dialler),
            ) as pool,
            pool.stream(
                b"GET",
                httpcore2.URL(scheme=remote.scheme, host=host, port=None, target=remote.target),
                headers=_headers(host),
                extensions={"timeout": self._timeouts()},
            ) as response,
        ):
            _check_head(response, limit)
            return await _body(response, limit, take)

    def _timeouts(self) -> dict[str, float]:
        limits = self._limits
        return {"connect": limits.connect_s, "read": limits.read_s, "write": limits.read_s, "pool": limits.connect_s}


def _headers(host: str) -> list[tuple[bytes, bytes]]:
    return [
        (b"Host", host.encode("ascii")),
        (b"Accept", b"*/*"),
        (b"Accept-Encoding", b"identity"),
        (b"User-Agent", _USER_AGENT),
        (b"Connection", b"close"),
    ]


def _check_head(response: httpcore2.Response, limit: SizeLimit) -> None:
    if response.status != _OK:
        raise MediaFault(f"cannot be fetched: its host answers with status {response.status}, and only {_OK} is taken")
    headers = {name.lower(): value for name, value in response.headers}
    if headers.get(b"content-encoding", b"identity").strip().lower() not in (b"", b"identity"):
        raise MediaFault("cannot be fetched: its host sends it compressed, and was asked not to")
    length = headers.get(b"content-length", b"0")
    if int(length) > limit.max_bytes:
        raise too_large(int(length), limit)


async def _body(response: httpcore2.Response, limit: SizeLimit, take: Callable[[int], None]) -> bytearray:
    data = bytearray()
    num_pieces = 0
    async for piece in response.aiter_stream():
        num_pieces += 1
        if num_pieces % _PIECES_A_TURN == 0:
            await asyncio.sleep(0)  # pieces that have come already are given without waiting
        if num_pieces > _FREE_PIECES + len(data) // _LEAST_PIECE:
            raise MediaFault("cannot be fetched: its host sends it in crumbs")
        if len(data) + len(piece) > limit.max_bytes:
            raise too_large(len(data) + len(piece), limit, is_all=False)
        take(len(piece))
        data += piece
    if not data:
        raise MediaFault("holds no data")
    return data


def _name(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
