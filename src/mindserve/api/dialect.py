"""The one module that owns the difference between the two dialects of the API (setting ``openAiSupport``).

Every answer, event and error passes through a ``Dialect``; nothing else branches on it.

| what went wrong           | ``vllm``                      | ``openai``                             |
|---------------------------|-------------------------------|----------------------------------------|
| a field, the body         | 422 Input Validation Error    | 400 invalid_request_error              |
| unknown model             | 422 Input Validation Error    | 404 ... code model_not_found           |
| prompt too long           | 422 Input Validation Error    | 400 ... code context_length_exceeded   |
| queue full                | 503 Service Unavailable       | 429 rate_limit_error                   |
| loading, draining, failed | 503 Service Unavailable       | 503 server_error                       |
| engine failure            | 500 Incomplete Generation     | 500 server_error                       |

What is no HTTP, and heads that are too large, are 400 and 431 in both; so are 404, 405, 413 and 415.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from mindserve.api._generated.models import (
    ChatCompletion,
    ChatCompletionChunk,
    ErrorBody,
    OpenAIError,
    OpenAIErrorBody,
)
from mindserve.config.settings import Dialect as DialectName
from mindserve.errors import MindserveError, RefusalKind, RequestRefused

CONTENT_ENCODING: Final = "Content-Encoding"
"""A refusal of this header says which encodings would do, as RFC 9110, 15.5.16 asks."""

INTERNAL_ERROR_TEXT: Final = "the server failed to answer; its log has the details"
"""For exceptions nobody foresaw: their own text might show what is nobody's business."""


class WireError(NamedTuple):
    """An error as it is sent: status, body and the headers that belong to it."""

    status: int
    body: msgspec.Struct
    headers: dict[str, str]


class Dialect(Protocol):
    """How answers and errors look on the wire."""

    def completion(self, completion: ChatCompletion) -> msgspec.Struct:
        """The body of a complete answer."""

    def chunks(self, chunk: ChatCompletionChunk) -> tuple[msgspec.Struct, ...]:
        """The events that one step of a stream becomes."""

    def error(self, error: Exception) -> WireError:
        """A refusal or a failure before any header was sent."""

    def stream_error(self, error: Exception) -> msgspec.Struct:
        """The event that tells of a failure inside a stream; nothing follows it."""


def dialect_named(name: DialectName) -> Dialect:
    return VllmDialect() if name is DialectName.VLLM else OpenAIDialect()


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, MindserveError) else INTERNAL_ERROR_TEXT


def _headers(error: Exception) -> dict[str, str]:
    if not isinstance(error, RequestRefused):
        return {}
    if error.kind is RefusalKind.TOO_LARGE:
        return {"Connection": "close"}  # the rest of the body is not read
    if error.field == CONTENT_ENCODING:
        return {"Accept-Encoding": "identity"}
    return {"Retry-After": str(error.retry_after_s)} if error.retry_after_s is not None else {}


_VllmErrorType: TypeAlias = Literal[
    "Bad Request",
    "NotFoundError",
    "Method Not Allowed",
    "Request Entity Too Large",
    "Unsupported Media Type",
    "Input Validation Error",
    "Request Header Fields Too Large",
    "Incomplete Generation",
    "Service Unavailable",
]

_VLLM: Final[dict[RefusalKind, tuple[int, _VllmErrorType]]] = {
    RefusalKind.VALIDATION: (422, "Input Validation Error"),
    RefusalKind.MODEL_NOT_FOUND: (422, "Input Validation Error"),
    RefusalKind.CONTEXT_LENGTH: (422, "Input Validation Error"),
    RefusalKind.OVERLOADED: (503, "Service Unavailable"),
    RefusalKind.UNAVAILABLE: (503, "Service Unavailable"),
    RefusalKind.TOO_LARGE: (413, "Request Entity Too Large"),
    RefusalKind.UNSUPPORTED_MEDIA_TYPE: (415, "Unsupported Media Type"),
    RefusalKind.NOT_FOUND: (404, "NotFoundError"),
    RefusalKind.METHOD_NOT_ALLOWED: (405, "Method Not Allowed"),
    RefusalKind.MALFORMED_HTTP: (400, "Bad Request"),
    RefusalKind.HEADERS_TOO_LARGE: (431, "Request Header Fields Too Large"),
}


class VllmDialect:
    """The API of the document, with flat errors."""

    def completion(self, completion: ChatCompletion) -> msgspec.Struct:
        return completion

    def chunks(self, chunk: ChatCompletionChunk) -> tuple[msgspec.Struct, ...]:
        return (chunk,)

    def error(self, error: Exception) -> WireError:
        kind = error.kind if isinstance(error, RequestRefused) else None
        status, error_type = _VLLM[kind] if kind is not None else (500, "Incomplete Generation")
        return WireError(status, ErrorBody(error=_text(error), error_type=error_type), _headers(error))

    def stream_error(self, error: Exception) -> msgspec.Struct:
        return self.error(error).body


class _OpenAIClass(NamedTuple):
    status: int
    type: Literal["invalid_request_error", "rate_limit_error", "server_error"]
    code: str | None


_OPENAI: Final[dict[RefusalKind, _OpenAIClass]] = {
    RefusalKind.VALIDATION: _OpenAIClass(400, "invalid_request_error", None),
    RefusalKind.MODEL_NOT_FOUND: _OpenAIClass(404, "invalid_request_error", "model_not_found"),
    RefusalKind.CONTEXT_LENGTH: _OpenAIClass(400, "invalid_request_error", "context_length_exceeded"),
    RefusalKind.OVERLOADED: _OpenAIClass(429, "rate_limit_error", "server_overloaded"),
    RefusalKind.UNAVAILABLE: _OpenAIClass(503, "server_error", "service_unavailable"),
    RefusalKind.TOO_LARGE: _OpenAIClass(413, "invalid_request_error", "request_too_large"),
    RefusalKind.UNSUPPORTED_MEDIA_TYPE: _OpenAIClass(415, "invalid_request_error", "unsupported_media_type"),
    RefusalKind.NOT_FOUND: _OpenAIClass(404, "invalid_request_error", "not_found"),
    RefusalKind.METHOD_NOT_ALLOWED: _OpenAIClass(405, "invalid_request_error", "method_not_allowed"),
    RefusalKind.MALFORMED_HTTP: _OpenAIClass(400, "invalid_request_error", "malformed_http"),
    RefusalKind.HEADERS_TOO_LARGE: _OpenAIClass(431, "invalid_request_error", "headers_too_large"),
}

_OPENAI_FAULT: Final = _OpenAIClass(500, "server_error", None)


class OpenAIDialect:
    """OpenAI's errors and statuses around the same answers."""

    def completion(self, completion: ChatCompletion) -> msgspec.Struct:
        return completion

    def chunks(self, chunk: ChatCompletionChunk) -> tuple[msgspec.Struct, ...]:
        return (chunk,)

    def error(self, error: Exception) -> WireError:
        kind = _OPENAI[error.kind] if isinstance(error, RequestRefused) else _OPENAI_FAULT
        param = error.field if isinstance(error, RequestRefused) else None
        particulars = OpenAIError(message=_text(error), type=kind.type, param=param, code=kind.code)
        return WireError(kind.status, OpenAIErrorBody(error=particulars), _headers(error))

    def stream_error(self, error: Exception) -> msgspec.Struct:
        return self.error(error).body
