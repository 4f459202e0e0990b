"""HTTP/1.1 as clients really speak it, and as those speak it who mean harm: bytes on a socket."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx2
import pytest

from mindserve.cli.protocol import PlaneProtocol
from mindserve.config.settings import Dialect, ServeSettings
from tests.serving import HELLO, MODEL, Live, Model, chat_body, eventually, is_idle, prompt_body, running

CHAT = b"/v1/chat/completions"
HEALTH = b"GET /health HTTP/1.1\r\nHost: t\r\n\r\n"
H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
HEAD_LIMIT = 65536
_TURNS = 8


class Peer:
    """A connection to the server, spoken by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, *packets: bytes) -> None:
        """Each is read by the server before the next is sent: both share one event loop, which gets some turns."""
        for packet in packets:
            self.writer.write(packet)
            await self.writer.drain()
            for _ in range(_TURNS):
                await asyncio.sleep(0)

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of one answer that tells its length, or is chunked."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        status_line, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        if "content-length" in headers:
            body = await self.reader.readexactly(int(headers["content-length"]))
        else:
            body = b""
            while (size := int(await self.reader.readline(), 16)) or not await self.reader.readline():
                body += await self.reader.readexactly(size)
                await self.reader.readline()
        return int(status_line.split()[1]), headers, body

    async def is_closed(self) -> bool:
        """Waits for the server to close; what it still sends counts as not closed."""
        return await self.reader.read() == b""


@asynccontextmanager
async def connected(live: Live) -> AsyncIterator[Peer]:
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    async with asyncio.timeout(60):
        try:
            yield Peer(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


def post(body: Any, *fields: bytes, version: bytes = b"1.1") -> tuple[bytes, bytes]:
    """Head and body of a chat request."""
    data = json.dumps(body).encode()
    head = b"POST %s HTTP/%s\r\nHost: t\r\nContent-Length: %d\r\n" % (CHAT, version, len(data))
    return head + b"".join(fields) + b"\r\n", data


def text_of(body: bytes) -> str:
    return str(json.loads(body)["choices"][0]["message"]["content"])


@pytest.fixture
async def live(model: Model) -> AsyncIterator[Live]:
    async with running(model, ServeSettings(model_name=MODEL)) as started:
        yield started


@pytest.mark.parametrize("name", [b"X-Mindserve-Dialect", b"x-mindserve-dialect", b"X-MINDSERVE-DIALECT"])
@pytest.mark.parametrize("value", [b"openai", b" \topenai", b" openai \t ", b"\topenai\t"])
async def test_blanks_around_a_value_are_no_part_of_it(live: Live, name: bytes, value: bytes) -> None:
    blanks = (b"%s:%s\r\n" % (name, value), b"Content-Type:application/json \r\n", b"Content-Encoding: identity \r\n")
    async with connected(live) as peer:
        await peer.send(*post(HELLO, *blanks))
        status, _, answer = await peer.answer()
    assert (status, text_of(answer)) == (200, "Hello! How are you?")
    assert "prefill_time" not in json.loads(answer)


@pytest.mark.parametrize("upgrade", [H2C, b"Connection: close, Upgrade\r\nUpgrade: websocket\r\n"])
@pytest.mark.parametrize("num_packets", [1, 2, 3])
async def test_a_wish_to_upgrade_is_ignored(live: Live, upgrade: bytes, num_packets: int) -> None:
    head, body = post(HELLO, upgrade)
    packets = {1: [head + body], 2: [head, body], 3: [head[:70], head[70:] + body[:9], body[9:]]}[num_packets]
    async with connected(live) as peer:
        await peer.send(*packets)
        status, headers, answer = await peer.answer()
        assert (status, text_of(answer)) == (200, "Hello! How are you?")
        if b"close" in upgrade:
            assert headers["connection"] == "close"
            assert await peer.is_closed()
            return
        await peer.send(*packets, HEALTH)
        assert text_of((await peer.answer())[2]) == "Hello! How are you?"
        assert (await peer.answer())[0] == 200


async def test_requests_with_a_wish_to_upgrade_may_be_pipelined_and_chunked(live: Live) -> None:
    head, body = post(prompt_body("count"), H2C)
    chunked = head.replace(b"Content-Length: %d\r\n" % len(body), b"Transfer-Encoding: chunked\r\n")
    pieces = b"".join(b"1;x=y\r\n%c\r\n" % byte for byte in body) + b"0\r\nTrailer: ignored\r\n\r\n"
    async with connected(live) as peer:
        await peer.send(head + body + chunked + pieces + HEALTH)
        for _ in range(2):
            status, _, answer = await peer.answer()
            assert (status, text_of(answer)) == (200, "1 2 3 4 5")
        assert (await peer.answer())[0] == 200


async def test_curl_that_would_like_http2(live: Live) -> None:
    for size in (0, 200_000):
        body = json.dumps(prompt_body("count" + " " * size)).encode()
        process = await asyncio.create_subprocess_exec(
            *["curl", "--silent", "--show-error", "--http2", "--data-binary", "@-", f"{live.url}/v1/chat/completions"],
            *["--header", "Content-Type: application/json", "--header", "Expect:"],
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate(body)
        assert text_of(output) == "1 2 3 4 5"


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS to a plain port
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /health\r\n\r\n",
        b"GET /health HTTP/2.0\r\n\r\n",
        b"GET /health HTTP/3.0\r\n\r\n",
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n",
        b"GET /health HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST /health HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
@pytest.mark.parametrize("dialect", Dialect)
async def test_what_is_no_http_is_a_400_in_the_dialect_s_shape(model: Model, dialect: Dialect, garbage: bytes) -> None:
    async with running(model, ServeSettings(model_name=MODEL, dialect=dialect)) as live, connected(live) as peer:
        await peer.send(garbage)
        status, headers, body = await peer.answer()
        assert (status, headers["connection"], headers["content-type"]) == (400, "close", "application/json")
        assert headers["requestuuid"]
        if dialect is Dialect.VLLM:
            assert json.loads(body)["error_type"] == "Bad Request"
        else:
            assert json.loads(body)["error"]["type"] == "invalid_request_error"
        assert await peer.is_closed()


async def test_requests_before_a_broken_one_get_their_answers(live: Live) -> None:
    head, body = post(prompt_body("count"))
    async with connected(live) as peer:
        await peer.send(head + body + b"no request\r\n\r\n")
        status, _, answer = await peer.answer()
        assert (status, text_of(answer)) == (200, "1 2 3 4 5")
        assert await peer.is_closed()


async def test_requests_before_a_broken_body_get_their_answers(live: Live) -> None:
    head, body = post(prompt_body("count"))
    chunked = head.replace(b"Content-Length: %d" % len(body), b"Transfer-Encoding: chunked")
    async with connected(live) as peer:
        await peer.send(head + body + head + body + chunked + b"no size\r\n")
        for _ in range(2):
            status, _, answer = await peer.answer()
            assert (status, text_of(answer)) == (200, "1 2 3 4 5")
        assert await peer.is_closed()
        await eventually(lambda: is_idle(live))


async def test_requests_sent_ahead_are_answered_in_order_with_bodies_of_any_size(live: Live) -> None:
    texts = ["hello", "count" + " " * 300_000, "letters", "count" + " " * 5_000]
    async with connected(live) as peer:
        sending = asyncio.create_task(peer.send(*(b"".join(post(prompt_body(text))) + HEALTH for text in texts)))
        for expected in ("Hello! How are you?", "1 2 3 4 5", "ABCDEFG", "1 2 3 4 5"):
            assert text_of((await peer.answer())[2]) == expected
            assert (await peer.answer())[0] == 200
        await sending


@pytest.mark.parametrize("ahead", [HEALTH, HEALTH * 500, b"".join(post(HELLO)), post(HELLO)[0]])
async def test_a_client_that_sent_ahead_and_leaves_is_noticed(live: Live, ahead: bytes) -> None:
    async with connected(live) as peer:
        await peer.send(b"".join(post(prompt_body("hang at once"))) + ahead)
        await eventually(lambda: live.engine.stats().num_running == 1)
    await eventually(lambda: is_idle(live))


@pytest.mark.parametrize("ahead", [HEALTH, b"".join(post({}))], ids=["health", "refused"])
@pytest.mark.parametrize("first", ["hello", "hang at once"])
async def test_little_is_kept_of_what_is_sent_ahead(live: Live, first: str, ahead: bytes) -> None:
    """Whether the answer before it takes long or is not read: the client is made to wait, and nothing piles up."""
    with socket.create_connection(("127.0.0.1", live.port)) as client:
        client.setblocking(False)
        client.send(b"".join(post(prompt_body(first))))
        flood, num_sent, num_idle_turns = ahead * 2000, 0, 0
        while num_idle_turns < 1000 and num_sent < 64 * 1024 * 1024:
            try:
                # whole requests or not: the rest of a cut one is sent first
                num_sent += client.send(flood[num_sent % len(ahead) :])
                num_idle_turns = 0
            except BlockingIOError:
                num_idle_turns += 1
            await asyncio.sleep(0)
        # not isinstance: it would ask objects of other libraries for their class, and some warn then
        protocols = [item for item in gc.get_objects() if issubclass(type(item), PlaneProtocol)]
        (connection,) = (item for item in protocols if item.client == client.getsockname())
        assert num_idle_turns == 1000
        assert len(connection.pipeline) < 250
        assert len(connection._unread) < 1024 * 1024
    live.server.lifecycle.give_up_all()  # what hangs: nobody hears a client leave behind so much that is not read
    await eventually(lambda: is_idle(live))


async def test_a_body_that_breaks_ends_its_request(live: Live) -> None:
    head, body = post(HELLO)
    async with connected(live) as peer:
        await peer.send(head.replace(b"Content-Length: %d" % len(body), b"Transfer-Encoding: chunked"), b"1\r\n{\r\n")
        await eventually(lambda: live.server.lifecycle.num_in_flight == 1)
        await peer.send(b"no size\r\n")
        assert (await peer.answer())[0] == 400
        assert await peer.is_closed()
        await eventually(lambda: is_idle(live))


@pytest.mark.parametrize("dialect", Dialect)
async def test_a_head_may_have_so_many_bytes(model: Model, dialect: Dialect) -> None:
    async with running(model, ServeSettings(model_name=MODEL, dialect=dialect)) as live:
        for size, expected in ((HEAD_LIMIT - 100, 200), (HEAD_LIMIT, 431)):
            for line in (b"X: " + b"a" * size, b"\r\n".join([b"X-Long-Name: b"] * (size // 16))):
                async with connected(live) as peer:
                    await peer.send(b"GET /health HTTP/1.1\r\nHost: t\r\n" + line + b"\r\n\r\n")
                    status, _, body = await peer.answer()
                    assert status == expected
                    if status == 431:
                        assert await peer.is_closed()
                        error = json.loads(body)
                        flat = error if dialect is Dialect.VLLM else error["error"]
                        assert str(HEAD_LIMIT) in (flat["error"] if dialect is Dialect.VLLM else flat["message"])


ENDLESS = {
    "value": (b"GET /health HTTP/1.1\r\nX: ", b"a" * 65536),
    "name": (b"GET /health HTTP/1.1\r\n", b"a" * 65536),
    "fields": (b"GET /health HTTP/1.1\r\n", b"X: yz\r\n" * 8192),
    "path": (b"GET /", b"a" * 65536),
    "blank lines": (b"", b"\r\n" * 32768),
    "trailers": (b"POST %s HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n" % CHAT, b"X: yz\r\n" * 8192),
    "chunk extensions": (b"POST %s HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1" % CHAT, b";x=y" * 16384),
}


@pytest.mark.parametrize("kind", ENDLESS)
async def test_endless_heads_take_no_memory_and_are_told(live: Live, kind: str) -> None:
    start, more = ENDLESS[kind]
    async with connected(live) as peer:
        await peer.send(start)
        tracemalloc.start()
        try:
            for _ in range(320):  # 20 MiB, most of it after the refusal: its sender must still get to read it
                peer.writer.write(more)
                await peer.writer.drain()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 4 * 1024 * 1024
        status, _, body = await peer.answer()
        assert (status, json.loads(body)["error_type"]) == (431, "Request Header Fields Too Large")
        assert await peer.is_closed()
        await eventually(lambda: is_idle(live))


@pytest.mark.parametrize("in_chunks", [False, True])
async def test_a_client_that_sends_too_much_learns_why(model: Model, *, in_chunks: bool) -> None:
    """Common clients send everything before they read anything."""

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield b" " * 100_000

    settings = ServeSettings(model_name=MODEL, max_request_bytes=100_000)
    async with running(model, settings) as live, httpx2.AsyncClient(base_url=live.url, timeout=30) as client:
        content = pieces() if in_chunks else b" " * 20_000_000
        response = await client.post("/v1/chat/completions", content=content)
        assert (response.status_code, response.json()["error_type"]) == (413, "Request Entity Too Large")
        await eventually(lambda: is_idle(live))


async def test_a_client_that_goes_on_after_its_refusal_is_cut_off_in_time(model: Model) -> None:
    settings = ServeSettings(model_name=MODEL, max_request_bytes=1000, keep_alive_s=1)
    async with running(model, settings) as live, connected(live) as peer:
        await peer.send(b"POST %s HTTP/1.1\r\nContent-Length: 100000000\r\n\r\n" % CHAT)
        assert (await peer.answer())[0] == 413
        with suppress(ConnectionError):
            while not peer.writer.transport.is_closing():
                await peer.send(b"x")


async def test_trailers_do_not_become_headers(live: Live) -> None:
    head, body = post(HELLO)
    chunked = head.replace(b"Content-Length: %d" % len(body), b"Transfer-Encoding: chunked")
    async with connected(live) as peer:
        await peer.send(chunked + b"%x\r\n%s\r\n0\r\nContent-Type: text/plain\r\n\r\n" % (len(body), body))
        assert (await peer.answer())[0] == 200


@pytest.mark.parametrize(
    ("first", "drip"),
    [
        (b"", b""),
        (b"", b"\r\n"),
        (b"GET /health HTT", b""),
        (b"GET /health HTTP/1.1\r\nX: ", b"a"),
        (HEALTH + b"GET /health HTTP/1.1\r\nX: ", b"a"),
        (b"POST /health HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n", b"a"),
    ],
)
async def test_a_connection_without_a_whole_head_is_closed_in_time(model: Model, first: bytes, drip: bytes) -> None:
    async with running(model, ServeSettings(model_name=MODEL, keep_alive_s=1)) as live, connected(live) as peer:
        await peer.send(first)
        if first.startswith((HEALTH, b"POST")):
            await peer.answer()
        closing = asyncio.create_task(peer.reader.read())
        while not closing.done():
            peer.writer.write(drip)
            await asyncio.wait((closing,), timeout=0.05)
        assert closing.exception() or closing.result() == b""  # a reset, where a byte crosses the closing


async def test_a_slow_answer_outlives_the_time_of_a_head(model: Model) -> None:
    """Also when the head of the next request has begun to come."""
    settings = ServeSettings(model_name=MODEL, keep_alive_s=1, e2e_timeout_s=3)
    async with running(model, settings) as live, connected(live) as peer:
        await peer.send(*post(prompt_body("hang at once")), b"GET /hea")
        assert (await peer.answer())[0] == 500
        await peer.send(b"lth HTTP/1.1\r\n\r\n")
        assert (await peer.answer())[0] == 200


@pytest.mark.parametrize("dialect", Dialect)
async def test_more_connections_than_are_served_are_told(model: Model, dialect: Dialect) -> None:
    settings = ServeSettings(model_name=MODEL, dialect=dialect, max_connections=1, max_waiting=0)
    async with running(model, settings) as live:
        opened = [await asyncio.open_connection("127.0.0.1", live.port) for _ in range(257)]
        async with connected(live) as peer:
            await peer.send(*post(HELLO))
            status, headers, body = await peer.answer()
            assert int(headers["retry-after"]) >= 1
            assert await peer.is_closed()
        if dialect is Dialect.VLLM:
            assert (status, json.loads(body)["error_type"]) == (503, "Service Unavailable")
        else:
            assert (status, json.loads(body)["error"]["type"]) == (429, "rate_limit_error")
        first = Peer(*opened[0])
        await first.send(HEALTH)
        assert (await first.answer())[0] == 200
        for _, writer in opened:
            writer.close()
            await writer.wait_closed()


@pytest.mark.parametrize("keep", [b"", b"Connection: keep-alive\r\n"])
async def test_http_1_0_gets_no_chunks(live: Live, keep: bytes) -> None:
    async with connected(live) as peer:
        await peer.send(*post(chat_body(stream=True), keep, version=b"1.0"))
        head, _, body = (await peer.reader.read()).partition(b"\r\n\r\n")  # to the connection's end
        assert b"transfer-encoding" not in head.lower()
        assert b"connection: close" in head.lower()
        assert body.startswith(b"data: {")
        assert body.endswith(b"data: [DONE]\n\n")
    async with connected(live) as peer:
        await peer.send(*post(HELLO, keep, version=b"1.0"))
        _, headers, answer = await peer.answer()
        assert (headers["connection"], text_of(answer)) == ("close", "Hello! How are you?")
        assert await peer.is_closed()
