"""A place in front of the good server where one fault can be put in: every request and every answer passes through it.

It stands between the server's own HTTP layer and its application, so that all that a fault does not touch is real.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Receive, Send], Awaitable[None]]

CHAT: Final = "/v1/chat/completions"
MAX_HELD_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True)
class Question:
    """A request that came whole."""

    method: str
    path: str
    headers: list[tuple[bytes, bytes]]
    """Names in lower case."""
    body: bytes
    """Empty if it is too long to be held here: then it goes to the good server as it comes."""

    @property
    def fields(self) -> dict[str, Any] | None:
        """The JSON object that a chat request gives, None for anything else."""
        if self.path.rstrip("/") != CHAT or self.method != "POST":
            return None
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    def with_fields(self, fields: dict[str, Any]) -> Question:
        return replace(self, body=json.dumps(fields, ensure_ascii=False).encode("utf-8", "surrogatepass"))


@dataclass(frozen=True)
class Answer:
    """A response that came whole."""

    status: int
    headers: list[tuple[str, str]]
    """Names in lower case."""
    body: bytes
    is_cut: bool = False
    """The connection breaks after the body: the HTTP layer closes it when an application leaves before the end."""

    @property
    def kind(self) -> str:
        return dict(self.headers).get("content-type", "")

    @property
    def is_stream(self) -> bool:
        return self.status == 200 and self.kind.startswith("text/event-stream")

    def with_header(self, name: str, value: str | None) -> Answer:
        """``None`` takes the header away."""
        others = [pair for pair in self.headers if pair[0] != name]
        return replace(self, headers=others if value is None else [*others, (name, value)])

    def with_body(self, body: bytes) -> Answer:
        is_sized = any(name == "content-length" for name, _ in self.headers)
        return replace(self.with_header("content-length", str(len(body)) if is_sized else None), body=body)


Forward = Callable[[Question], Awaitable[Answer]]
Fault = Callable[[Question, Forward], Awaitable[Answer]]
"""What becomes of a request: ``forward`` asks the good server, as often as the fault likes."""


async def no_fault(question: Question, forward: Forward) -> Answer:
    return await forward(question)


class ClientLeft(Exception):
    """Before the application said anything."""


class Proxy:
    """The application ``app`` with a fault in front of it."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._fault: Fault = no_fault

    @contextmanager
    def having(self, fault: Fault) -> Iterator[None]:
        """Every request that begins in this block meets ``fault``."""
        self._fault = fault
        try:
            yield
        finally:
            self._fault = no_fault

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = [(name.lower(), value) for name, value in scope["headers"]]
        is_held = int(dict(headers).get(b"content-length", b"0")) <= MAX_HELD_BYTES
        body = await _whole_body(receive) if is_held else b""
        if body is None:
            return

        async def forward(changed: Question) -> Answer:
            begin = _all_at_once(changed.body, receive) if is_held or changed.body else receive
            return await _ask(
                self._app, {**scope, "method": changed.method, "path": changed.path, "headers": _sized(changed)}, begin
            )

        try:
            answer = await self._fault(Question(scope["method"], scope["path"], headers, body), forward)
        except ClientLeft:
            return
        await _say(answer, send)


async def _whole_body(receive: Receive) -> bytes | None:
    """None: the client left before it had sent all."""
    pieces: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)


def _all_at_once(body: bytes, client: Receive) -> Receive:
    """What an application receives: the body, then whatever the client does."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return waiting.pop() if waiting else await client()

    return receive


def _sized(question: Question) -> list[tuple[bytes, bytes]]:
    """The headers, with the length of a body that was changed."""
    size = b"%d" % len(question.body)
    is_changed = question.body != b""
    return [(name, size if name == b"content-length" and is_changed else value) for name, value in question.headers]


async def _ask(app: App, scope: Any, receive: Receive) -> Answer:
    messages: list[Message] = []

    async def send(message: Message) -> None:
        messages.append(message)

    await app(scope, receive, send)
    if not messages:
        raise ClientLeft
    start, *rest = messages
    headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in start["headers"]]
    return Answer(start["status"], headers, b"".join(message.get("body", b"") for message in rest))


async def _say(answer: Answer, send: Send) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": answer.is_cut})
