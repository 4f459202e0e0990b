"""HTTP/1.1 of one connection: uvicorn's protocol, with the limits and refusals of this server around it.

What differs from uvicorn's own:

- a wish to upgrade the protocol is ignored (RFC 9110, 7.8): the request is answered over HTTP/1.1, its body included;
- a request head must be complete in size (431) and in time (the connection closes);
- what is not HTTP, and connections beyond the limit, are refused in the words of the API's dialect;
- a client that is refused while it sends may send on for a while, so that it sees why;
- of requests that a client sends ahead of its answers few are read, and its leaving is seen behind them;
- blanks behind the value of a header field are no part of it (RFC 9112, 5.1);
- HTTP/1.0 knows no chunks: there the end of the connection is the end of an answer whose length is not known before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final

import msgspec
import uvicorn
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from mindserve.api.dialect import Dialect
from mindserve.errors import RefusalKind, RequestRefused
from mindserve.observe.logs import fields
from mindserve.observe.request_id import RESPONSE_HEADER, request_uuid

_LOG: Final = logging.getLogger(__name__)

MAX_HEAD_BYTES: Final = 64 * 1024
"""Of the request line and the header fields together; of the trailer fields likewise."""

RETRY_AFTER_CROWD_S: Final = 1

_PIECE_BYTES: Final = 4096
"""Parsed at a time: bounds the requests that become objects before their turn. One takes at least 18 bytes."""

_FIELD_MARKS: Final = len(": \r\n")
_VERSIONS: Final = ("1.0", "1.1")


class PlaneConfig(uvicorn.Config):
    """uvicorn's settings of one plane, and what its connections have to know besides."""

    def __init__(self, app: Any, *, dialect: Dialect, max_connections: int, **options: Any) -> None:
        """``max_connections``: open at a time; the requests of any more are refused."""
        super().__init__(app, http=PlaneProtocol, **options)
        self.dialect = dialect
        self.max_connections = max_connections


class PlaneProtocol(HttpToolsProtocol):
    """One connection. Callbacks of the parser may raise ``RequestRefused``."""

    def __init__(
        self,
        config: PlaneConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._dialect = config.dialect
        self._max_connections = config.max_connections
        self._answered: RequestResponseCycle | None = None
        """The request whose turn it is, or was last; ``cycle`` is the one that was read last."""
        self._unread = bytearray()
        """Behind requests that wait for their turn."""
        self._in_head = False
        self._num_field_bytes = 0
        """Parsed since the connection last brought something other than more fields of the same head or trailer."""
        self._is_deaf = False
        """What comes is dropped."""
        self._lingers = False
        """Nothing more is sent; the client is waited for."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # narrowed by uvicorn
        super().connection_made(transport)
        self.flow = _Flow(transport, self._unread)
        self._start_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self.pipeline.clear()
        self._unread.clear()
        if self._answered is not None:
            self._answered.disconnected = True
            self._answered.message_event.set()

    def data_received(self, data: bytes) -> None:
        self._unread += data
        self._read()

    def _read(self) -> None:
        """Parse what has come until a request has to wait for the answer to another one."""
        while self._unread and not (self._is_deaf or self.pipeline or self.transport.is_closing()):
            piece = bytes(self._unread[:_PIECE_BYTES])
            del self._unread[:_PIECE_BYTES]
            self._parse(piece)
        if self._is_deaf:
            self._unread.clear()
        if len(self._unread) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()

    def _parse(self, piece: bytes) -> None:
        self._num_field_bytes += len(piece)
        try:
            self._feed(memoryview(piece))
            if self._num_field_bytes > MAX_HEAD_BYTES:
                raise _head_too_large()
        except RequestRefused as refusal:
            self._refuse(refusal)
        except HttpParserError as error:
            cause = error.__context__  # what a callback raised
            self._refuse(cause if isinstance(cause, RequestRefused) else _malformed(str(error)))

    def _feed(self, data: memoryview) -> None:
        while True:
            try:
                self.parser.feed_data(data)
            except HttpParserUpgrade as upgrade:
                # This parser has skipped the body: a new one reads the request again, without the wish.
                head, data = b"".join(self._head_without_upgrade()), data[upgrade.args[0] :]
                self.parser = HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
                self.parser.feed_data(head)
            else:
                return

    def _head_without_upgrade(self) -> Iterator[bytes]:
        method = self.parser.get_method()
        if method == b"CONNECT":
            raise _malformed("CONNECT is for proxies")
        yield b"%s %s HTTP/%s\r\n" % (method, self.url, self.parser.get_http_version().encode())
        for name, value in self.headers:
            if name == b"connection":
                others = (option for option in value.split(b",") if option.strip().lower() != b"upgrade")
                yield b"connection: %s\r\n" % b",".join(others)
            elif name != b"upgrade":
                yield b"%s: %s\r\n" % (name, value)
        yield b"\r\n"

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._num_field_bytes = 0
        if self.cycle is None or self.cycle.response_complete:
            self._start_clock()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # trailer fields mean nothing here
            super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._num_field_bytes = 0
        if len(self.url) + sum(len(name) + len(value) + _FIELD_MARKS for name, value in self.headers) > MAX_HEAD_BYTES:
            raise _head_too_large()
        if self.parser.get_http_version() not in _VERSIONS:
            raise _malformed(f"its version is HTTP/{self.parser.get_http_version()}")
        if self.parser.should_upgrade():
            return
        if len(self.connections) > self._max_connections:
            raise RequestRefused(
                "the server has as many connections as it can serve",
                kind=RefusalKind.OVERLOADED,
                retry_after_s=RETRY_AFTER_CROWD_S,
            )
        super().on_headers_complete()
        self.flow.resume_reading()  # how else would it be seen that the client leaves?
        self._unset_keepalive_if_required()

    def on_body(self, body: bytes) -> None:
        self._num_field_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        cycle.transport = _AnswerTransport(self, cycle)
        super()._start_asgi_task(cycle, _unchunked(app, cycle) if cycle.scope["http_version"] == "1.0" else app)

    def _start_clock(self) -> None:
        """Close the connection unless a request head is complete in time."""
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _refuse(self, refusal: RequestRefused) -> None:
        """Read no more of this connection, tell why where that is possible, and close it."""
        _LOG.info("a connection was refused", extra=fields(reason=refusal.kind.value))
        self._is_deaf = True
        if self.pipeline and self.pipeline[0][0].more_body:
            self.pipeline.popleft()  # its body will never be whole, and it has not begun
        cycle = self.pipeline[0][0] if self.pipeline else self._answered
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:
                cycle.keep_alive = False  # the requests before this one are whole and get their answers
                return
            cycle.disconnected = True  # its body will never be whole
            cycle.message_event.set()
            if cycle.response_started:
                self.transport.close()
                return
        self.transport.write(self._refusal_bytes(refusal))
        self.linger()

    def linger(self) -> None:
        """Close when the client does, or its time is over. What it still sends is dropped: left unread, it would make
        the system reset the connection, and the client would lose what it was told."""
        self._is_deaf = self._lingers = True
        self._unread.clear()
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._start_clock()

    def on_response_complete(self) -> None:
        if not self._lingers:
            super().on_response_complete()
            self._read()

    def shutdown(self) -> None:
        if self._lingers:
            self.transport.close()
        else:
            super().shutdown()

    def _refusal_bytes(self, refusal: RequestRefused) -> bytes:
        wire = self._dialect.error(refusal)
        body = msgspec.json.encode(wire.body)
        headers = {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Connection": "close",
            RESPONSE_HEADER: request_uuid(None),
            **wire.headers,
        }
        lines = [f"HTTP/1.1 {wire.status} {HTTPStatus(wire.status).phrase}"]
        lines += [f"{name.decode()}: {value.decode()}" for name, value in self.server_state.default_headers]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + body


class _Flow(FlowControl):
    """Reads no further than ``HIGH_WATER_LIMIT`` ahead, whoever would like to.

    A client that sends more before its answer is made to wait, and its leaving is seen no earlier than what it sent."""

    def __init__(self, transport: asyncio.Transport, unread: bytearray) -> None:
        super().__init__(transport)
        self._unread = unread

    def resume_reading(self) -> None:
        if len(self._unread) <= HIGH_WATER_LIMIT:
            super().resume_reading()


class _AnswerTransport(asyncio.Transport):
    """The transport as an answer uses it: closing it does not cut off a client that is still sending its request."""

    def __init__(self, protocol: PlaneProtocol, cycle: RequestResponseCycle) -> None:
        super().__init__()
        self._protocol = protocol
        self._cycle = cycle
        self.write = protocol.transport.write  # type: ignore[method-assign]  # once per token: no call in between
        self.is_closing = protocol.transport.is_closing  # type: ignore[method-assign]  # likewise

    def close(self) -> None:
        if self._cycle.response_complete and self._cycle.more_body and not self.is_closing():
            self._protocol.linger()
        else:
            self._protocol.transport.close()


def _malformed(reason: str) -> RequestRefused:
    return RequestRefused(f"this is no HTTP/1.1 request: {reason}", kind=RefusalKind.MALFORMED_HTTP)


def _head_too_large() -> RequestRefused:
    return RequestRefused(
        f"the request line and header fields are larger than {MAX_HEAD_BYTES} bytes", kind=RefusalKind.HEADERS_TOO_LARGE
    )


def _unchunked(app: Any, cycle: RequestResponseCycle) -> Any:
    """``app``, of whose answer to ``cycle`` the end is the connection's end unless it says its length."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        ends_with_connection = False

        async def send_unchunked(message: Any) -> None:
            nonlocal ends_with_connection
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message.get("headers", ())}
                ends_with_connection = b"content-length" not in names
                if ends_with_connection:
                    cycle.chunked_encoding = False
            elif ends_with_connection:
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, send_unchunked)

    return answer
