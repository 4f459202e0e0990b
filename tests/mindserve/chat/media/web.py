"""A small web of hosts on loopback: names and public addresses that lead to one server, which answers by path."""

from __future__ import annotations

import asyncio
import datetime
import gzip
import socket
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpcore2
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PUBLIC = "93.184.216.34"
DEAD = "8.8.4.4"
"""Nobody listens there."""

Handler = Callable[["Web", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Web(httpcore2.AsyncNetworkBackend):
    """The dialler: connects to the loopback server in place of public addresses, and keeps the books."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names
        self.ports: dict[int, int] = {}
        self.looked_up: list[str] = []
        self.dialled: list[str] = []
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.open: set[asyncio.Task[None]] = set()
        self.events: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.sni: list[str | None] = []
        self.files: dict[str, bytes] = {}
        """By path."""
        self._inner = httpcore2.AnyIOBackend()

    async def resolve(self, host: str, port: int) -> list[str]:
        """A list of addresses; several lists: one for each time that the name is looked up; an error; a coroutine."""
        self.looked_up.append(host)
        found = self.names.get(host, socket.gaierror(-2, "Name or service not known"))
        if isinstance(found, Exception):
            raise found
        if callable(found):
            return list(await found())
        return found.pop(0) if found and isinstance(found[0], list) else list(found)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's signature
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        self.dialled.append(host)
        if host == DEAD:
            raise httpcore2.ConnectError(f"nothing listens at {host}")
        return await self._inner.connect_tcp("127.0.0.1", self.ports[port], timeout, local_address, socket_options)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.open.add(task)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            target = head[0].split(" ")[1]
            pairs = (line.split(": ", 1) for line in head[1:] if line)
            self.requests.append((target, {name.lower(): value for name, value in pairs}))
            handler, body = HANDLERS.get(target), self.files.get(target, f"you asked for {target}".encode())
            await (handler(self, reader, writer) if handler else respond(writer, body))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            self.open.discard(task)

    async def idle(self) -> None:
        """Until no connection is open."""
        if self.open:
            await asyncio.wait(self.open)


async def respond(writer: asyncio.StreamWriter, body: bytes, status: str = "200 OK", *headers: str) -> None:
    lines = (f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", "")
    writer.write("\r\n".join(lines).encode() + body)
    await writer.drain()


def _raw(answer: bytes) -> Handler:
    async def handler(web: Web, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    return handler


def _answer(body: bytes, status: str = "200 OK", *headers: str) -> Handler:
    async def handler(web: Web, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await respond(writer, body, status, *headers)

    return handler


def _stalls(start: bytes) -> Handler:
    """Sends the start, and nothing more until the client is gone."""

    async def handler(web: Web, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        await writer.drain()
        web.events["stalled"].set()
        await reader.read()
        web.events["left"].set()

    return handler


async def _drip(web: Web, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        writer.write(b"a")
        await writer.drain()
        await asyncio.sleep(0.01)


async def _endless(web: Web, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1000\r\n" + b"z" * 4096 + b"\r\n")
        await writer.drain()


async def _in_turn(web: Web, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers a path when the one after it has been answered."""
    target = web.requests[-1][0]
    web.events[f"asked {target}"].set()
    number = int(target.removeprefix("/turn/"))
    if number < 2:
        await web.events[f"answered {number + 1}"].wait()
    await respond(writer, target.encode())
    web.events[f"answered {number}"].set()


_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
_GZIP = gzip.compress(b"a" * 1_000_000)

HANDLERS: dict[str, Handler] = {
    "/ok": _answer(b"hello"),
    "/chunks": _raw(_CHUNKED + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"),
    "/until-close": _raw(b"HTTP/1.1 200 OK\r\n\r\nto the end"),
    "/identity": _answer(b"plain", "200 OK", "Content-Encoding: Identity"),
    "/redirect": _answer(b"", "302 Found", "Location: http://media.test/ok"),
    "/metadata": _answer(b"", "307 Temporary Redirect", "Location: http://169.254.169.254/"),
    "/partial": _answer(b"a", "206 Partial Content"),
    "/missing": _answer(b"the path /etc/secret is not here", "404 Not Found"),
    "/failing": _answer(b"", "503 Service Unavailable"),
    "/gzip": _answer(_GZIP, "200 OK", "Content-Encoding: gzip"),
    "/br": _answer(b"x", "200 OK", "Content-Encoding: br"),
    "/declared": _raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n"),
    "/declared-badly": _raw(b"HTTP/1.1 200 OK\r\nContent-Length: abc\r\n\r\nabc"),
    "/declared-negative": _raw(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nabc"),
    "/declared-twice": _raw(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"),
    "/declared-hugely": _raw(b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\nabc"),
    "/short": _raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc"),
    "/short-chunk": _raw(_CHUNKED + b"10\r\nabc"),
    "/bad-chunk": _raw(_CHUNKED + b"xyz\r\nabc\r\n"),
    "/junk": _raw(b"what?\r\n\r\n"),
    "/nothing": _raw(b""),
    "/headers": _raw(b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: %s\r\n" % (i, b"y" * 1000) for i in range(2000))),
    "/empty": _answer(b""),
    "/hang": _stalls(b""),
    "/hang-in-head": _stalls(b"HTTP/1.1 200 OK\r\nX-"),
    "/hang-in-body": _stalls(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"a" * 1000),
    "/drip": _drip,
    "/endless": _endless,
    "/crumbs": _raw(_CHUNKED + b"1\r\na\r\n" * 20_000 + b"0\r\n\r\n"),
    "/small-pieces": _raw(_CHUNKED + b"1\r\na\r\n" * 900 + b"0\r\n\r\n"),
    **{f"/turn/{number}": _in_turn for number in range(3)},
}


@asynccontextmanager
async def running_web(names: dict[str, Any], tls: ssl.SSLContext | None = None) -> AsyncIterator[Web]:
    web = Web(names)
    servers = [await asyncio.start_server(web.serve, "127.0.0.1", 0)]
    if tls is not None:
        tls.sni_callback = lambda _socket, name, _context: web.sni.append(name)
        servers.append(await asyncio.start_server(web.serve, "127.0.0.1", 0, ssl=tls))
    web.ports = {port: server.sockets[0].getsockname()[1] for port, server in zip((80, 443), servers, strict=False)}
    try:
        yield web
    finally:
        for server in servers:
            server.close()
        for task in list(web.open):
            task.cancel()
        await web.idle()


def write_certificate(folder: Path, *names: str) -> tuple[Path, Path]:
    """A certificate that signs itself, for the names, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    files = (folder / "web.pem", folder / "web.key")
    files[0].write_bytes(certificate.public_bytes(pem))
    plain = serialization.NoEncryption()
    files[1].write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    return files
