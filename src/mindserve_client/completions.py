"""``client.chat.completions``: one conversation in, one answer out, whole or as a stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Generic, Literal, Unpack, overload

from mindserve_client._generated.operations import OPERATIONS
from mindserve_client._generated.params import ChatCompletionParams
from mindserve_client.answers import parse
from mindserve_client.dialects import Answers, ChunkT, CompletionT
from mindserve_client.options import Options, Timeout
from mindserve_client.request import encode_request
from mindserve_client.stream import AsyncStream, Stream
from mindserve_client.transport import AsyncTransport, Call, Transport

_OPERATION: Final = OPERATIONS["createChatCompletion"]


class CreateParams(ChatCompletionParams, total=False):
    """The fields of a request, and what belongs to the call."""

    extra_headers: Mapping[str, str] | None
    """Sent with this request, in place of those of the same names."""
    extra_body: Mapping[str, Any] | None
    """Fields that the contract does not know, sent as they are."""
    timeout: Timeout
    """In place of the client's own."""


def _call(options: Options, stream: bool | None, params: Mapping[str, Any]) -> Call:
    fields = {**params, "stream": stream}
    headers = options.request_headers(fields.pop("extra_headers", None))
    headers["Content-Type"] = "application/json"
    if stream:
        headers["Accept"] = "text/event-stream, application/json"
    timeout, extra_body = fields.pop("timeout", options.timeout), fields.pop("extra_body", None)
    body = encode_request(fields, options.dialect, extra_body)
    return Call(_OPERATION.method, options.url(_OPERATION.path), headers, body, timeout)


class Completions(Generic[CompletionT, ChunkT]):
    """Of a ``Client``."""

    def __init__(self, transport: Transport, options: Options, answers: Answers[CompletionT, ChunkT]) -> None:
        self._transport = transport
        self._options = options
        self._answers = answers

    @overload
    def create(
        self,
        *,
        stream: Literal[False] | None = None,
        **params: Unpack[CreateParams],
    ) -> CompletionT: ...

    @overload
    def create(
        self,
        *,
        stream: Literal[True],
        **params: Unpack[CreateParams],
    ) -> Stream[ChunkT]: ...

    @overload
    def create(
        self,
        *,
        stream: bool | None,
        **params: Unpack[CreateParams],
    ) -> CompletionT | Stream[ChunkT]: ...

    def create(
        self,
        *,
        stream: bool | None = None,
        **params: Unpack[CreateParams],
    ) -> CompletionT | Stream[ChunkT]:
        """Ask for an answer; ``params`` are the fields of the contract's request and those of ``CreateParams``.

        Raises ``InvalidRequest`` before anything is sent, ``APIStatusError`` when the server refuses or fails,
        ``APIConnectionError`` when no answer came, ``InvalidResponse`` when what came is none."""
        call = _call(self._options, stream, params)
        if stream:
            return Stream(self._transport.open(call), self._answers.chunk, self._options.max_event_bytes)
        return parse(self._answers.completion, self._transport.fetch(call))


class AsyncCompletions(Generic[CompletionT, ChunkT]):
    """Of an ``AsyncClient``."""

    def __init__(self, transport: AsyncTransport, options: Options, answers: Answers[CompletionT, ChunkT]) -> None:
        self._transport = transport
        self._options = options
        self._answers = answers

    @overload
    async def create(
        self,
        *,
        stream: Literal[False] | None = None,
        **params: Unpack[CreateParams],
    ) -> CompletionT: ...

    @overload
    async def create(
        self,
        *,
        stream: Literal[True],
        **params: Unpack[CreateParams],
    ) -> AsyncStream[ChunkT]: ...

    @overload
    async def create(
        self,
        *,
        stream: bool | None,
        **params: Unpack[CreateParams],
    ) -> CompletionT | AsyncStream[ChunkT]: ...

    async def create(
        self,
        *,
        stream: bool | None = None,
        **params: Unpack[CreateParams],
    ) -> CompletionT | AsyncStream[ChunkT]:
        """As ``Completions.create``."""
        call = _call(self._options, stream, params)
        if stream:
            return AsyncStream(await self._transport.open(call), self._answers.chunk, self._options.max_event_bytes)
        return parse(self._answers.completion, await self._transport.fetch(call))
