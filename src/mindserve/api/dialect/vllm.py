"""The API of the document, with flat errors."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from mindserve.api._generated.models import ChatCompletion, ChatCompletionChunk, ChatCompletionRequest, ErrorBody
from mindserve.api.dialect.parts import StreamForm, WireError, error_headers, error_text, rules_of
from mindserve.api.request_model import RequestModel
from mindserve.config.settings import Dialect as DialectName
from mindserve.errors import RefusalKind, RequestRefused

_ErrorType: TypeAlias = Literal[
    "Bad Request",
    "Unauthorized",
    "NotFoundError",
    "Method Not Allowed",
    "Request Entity Too Large",
    "Unsupported Media Type",
    "Input Validation Error",
    "Request Header Fields Too Large",
    "Incomplete Generation",
    "Service Unavailable",
]

_ERRORS: Final[dict[RefusalKind, tuple[int, _ErrorType]]] = {
    RefusalKind.VALIDATION: (422, "Input Validation Error"),
    RefusalKind.UNAUTHORIZED: (401, "Unauthorized"),
    RefusalKind.MODEL_NOT_FOUND: (422, "Input Validation Error"),
    RefusalKind.MODEL_PATH_NOT_FOUND: (404, "NotFoundError"),
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
    """Answers are as they are assembled."""

    requests = RequestModel(DialectName.VLLM, ChatCompletionRequest)
    rules = rules_of(DialectName.VLLM)

    def completion(self, completion: ChatCompletion) -> msgspec.Struct:
        return completion

    def stream(self, request: ChatCompletionRequest, *, full_text: bool) -> StreamForm:
        return _VllmStream(full_text)

    def error(self, error: Exception) -> WireError:
        kind = error.kind if isinstance(error, RequestRefused) else None
        status, error_type = _ERRORS[kind] if kind is not None else (500, "Incomplete Generation")
        body = ErrorBody(error=error_text(error), error_type=error_type)
        return WireError(status, body, error_headers(error))

    def stream_error(self, error: Exception) -> msgspec.Struct:
        return self.error(error).body


class _VllmStream:
    has_usage_chunk = False

    def __init__(self, full_text: bool) -> None:
        self.has_full_text = full_text

    def opening(self, chunk: ChatCompletionChunk) -> msgspec.Struct:
        return chunk

    def chunk(self, chunk: ChatCompletionChunk) -> msgspec.Struct:
        return chunk
