"""A server that says, connection by connection, exactly the bytes that a test gives it."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from mindserve_client import models

HANG_UP: Final = b""
"""The connection ends without an answer."""
COMPLETION: Final = models.ChatCompletion(
    id="endpoint_common_0",
    object="chat.completion",
    created=0,
    model="m",
    choices=[
        models.Choice(
            index=0,
            message=models.AssistantMessage(role="assistant", content="hi", tool_calls=[]),
            logprobs=None,
            finish_reason="stop",
        )
    ],
    usage=models.Usage(
        prompt_tokens=1,
        prompt_tokens_details=models.PromptTokensDetails(cached_tokens=0),
        completion_tokens=1,
        total_tokens=2,
        batch_size=[1],
        queue_wait_time=[0],
    ),
    prefill_time=1.0,
    decode_time_arr=[],
)
CHUNK: Final = models.ChatCompletionChunk(
    id="endpoint_common_0",
    object="chat.completion.chunk",
    created=0,
    model="m",
    choices=[
        models.ChunkChoice(
            index=0, delta=models.ChunkDelta(role="assistant", content="hi"), logprobs=None, finish_reason=None
        )
    ],
)


def answer(status: int, body: str, *headers: str, kind: str = "application/json") -> bytes:
    """A whole answer; the connection ends with it."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", f"Content-Length: {len(body.encode())}"]
    return "\r\n".join([*lines, "Connection: close", *headers, "", body]).encode()


def events(*data: str, kind: str = "text/event-stream") -> bytes:
    """The answer to a request for a stream; it ends with the connection."""
    frames = "".join(f"data: {text}\n\n" for text in data)
    return f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n{frames}".encode()


GOOD: Final = answer(200, COMPLETION.model_dump_json(exclude_unset=True))


@dataclass
class Wire:
    """What was heard, a text per connection."""

    url: str
    heard: list[str] = field(default_factory=list)


@contextmanager
def wire(*answers: bytes | None, context: ssl.SSLContext | None = None, stays: bool = False) -> Iterator[Wire]:
    """Serve one answer per connection until the block ends. None: keep the connection open and say nothing; ``stays``:
    keep it open after any answer.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        scheme = "http" if context is None else "https"
        made = Wire(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}")
        over = threading.Event()
        thread = threading.Thread(target=_serve, args=(listener, answers, context, made, over, stays))
        thread.start()
        try:
            yield made
        finally:
            over.set()
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join(20)
            assert not thread.is_alive()


def _serve(
    listener: socket.socket,
    answers: Sequence[bytes | None],
    context: ssl.SSLContext | None,
    made: Wire,
    over: threading.Event,
    stays: bool,
) -> None:
    for said in answers:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with suppress(OSError), connection:
            encrypted = connection if context is None else context.wrap_socket(connection, server_side=True)
            with encrypted:
                made.heard.append(_request(encrypted))
                encrypted.sendall(said or b"")
                if said is None or stays:
                    over.wait(20)
                else:
                    encrypted.shutdown(socket.SHUT_WR)


def _request(connection: socket.socket) -> str:
    """Head and body."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            raise ConnectionAbortedError
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while lengths and len(body) < int(lengths[0]):
        body += connection.recv(65536)
    return (head + b"\r\n\r\n" + body).decode()
