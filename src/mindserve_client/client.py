"""The clients: ``Client`` for programs that wait, ``AsyncClient`` for asyncio."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Generic, Literal, Self, TypedDict, Unpack, overload

import httpx2

from mindserve_client._generated import models, openai_models
from mindserve_client.completions import AsyncCompletions, Completions
from mindserve_client.dialects import ANSWERS, Answers, ChunkT, CompletionT
from mindserve_client.options import DialectName, Options, Timeout, Tls
from mindserve_client.served_models import AsyncServedModels, ServedModels
from mindserve_client.transport import AsyncTransport, Transport


class ClientOptions(TypedDict, total=False):
    """How a client behaves; all may be left out."""

    api_key: str | None
    """Sent as ``Authorization: Bearer``."""
    timeout: Timeout
    """Seconds for each wait: for the connection, for room in the pool, for the next bytes. 600, and 10 to connect."""
    max_retries: int
    """Further attempts after broken connections and after 429 and 503: 2. Never after the first byte of an answer."""
    headers: dict[str, str]
    """Sent with every request."""
    max_event_bytes: int
    """The longest event of a stream: 64 MiB."""


class Chat(Generic[CompletionT, ChunkT]):
    """``client.chat``."""

    def __init__(self, transport: Transport, options: Options, answers: Answers[CompletionT, ChunkT]) -> None:
        self.completions = Completions(transport, options, answers)


class AsyncChat(Generic[CompletionT, ChunkT]):
    """``client.chat``."""

    def __init__(self, transport: AsyncTransport, options: Options, answers: Answers[CompletionT, ChunkT]) -> None:
        self.completions = AsyncCompletions(transport, options, answers)


class Client(Generic[CompletionT, ChunkT]):
    """A client of one server in one dialect. ``base_url`` is with or without ``/v1``. Threads may share it.

    ``tls`` says whom to trust; ``http_client`` replaces all of that and is not closed here. Raises ``ValueError`` for
    options that make no sense.
    """

    @overload
    def __init__(
        self: Client[models.ChatCompletion, models.ChatCompletionChunk],
        base_url: str,
        *,
        dialect: Literal["vllm"] = "vllm",
        tls: Tls | None = None,
        http_client: httpx2.Client | None = None,
        **options: Unpack[ClientOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Client[openai_models.ChatCompletion, openai_models.ChatCompletionChunk],
        base_url: str,
        *,
        dialect: Literal["openai"],
        tls: Tls | None = None,
        http_client: httpx2.Client | None = None,
        **options: Unpack[ClientOptions],
    ) -> None: ...

    def __init__(
        self,
        base_url: str,
        *,
        dialect: DialectName = "vllm",
        tls: Tls | None = None,
        http_client: httpx2.Client | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self.options = Options(base_url=base_url, dialect=dialect, **options)
        self._http = http_client if http_client is not None else httpx2.Client(verify=(tls or Tls()).context())
        self._owns_http = http_client is None
        transport = Transport(self._http, self.options)
        answers: Answers[Any, Any] = ANSWERS[dialect]
        self.chat: Chat[CompletionT, ChunkT] = Chat(transport, self.options, answers)
        self.models = ServedModels(transport, self.options)

    def close(self) -> None:
        """Close all connections."""
        if self._owns_http:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class AsyncClient(Generic[CompletionT, ChunkT]):
    """As ``Client``, for asyncio."""

    @overload
    def __init__(
        self: AsyncClient[models.ChatCompletion, models.ChatCompletionChunk],
        base_url: str,
        *,
        dialect: Literal["vllm"] = "vllm",
        tls: Tls | None = None,
        http_client: httpx2.AsyncClient | None = None,
        **options: Unpack[ClientOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncClient[openai_models.ChatCompletion, openai_models.ChatCompletionChunk],
        base_url: str,
        *,
        dialect: Literal["openai"],
        tls: Tls | None = None,
        http_client: httpx2.AsyncClient | None = None,
        **options: Unpack[ClientOptions],
    ) -> None: ...

    def __init__(
        self,
        base_url: str,
        *,
        dialect: DialectName = "vllm",
        tls: Tls | None = None,
        http_client: httpx2.AsyncClient | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self.options = Options(base_url=base_url, dialect=dialect, **options)
        self._http = http_client if http_client is not None else httpx2.AsyncClient(verify=(tls or Tls()).context())
        self._owns_http = http_client is None
        transport = AsyncTransport(self._http, self.options)
        answers: Answers[Any, Any] = ANSWERS[dialect]
        self.chat: AsyncChat[CompletionT, ChunkT] = AsyncChat(transport, self.options, answers)
        self.models = AsyncServedModels(transport, self.options)

    async def close(self) -> None:
        """Close all connections."""
        if self._owns_http:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()
