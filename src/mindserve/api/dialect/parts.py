"""What a dialect is, and what both have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

import msgspec

from mindserve.api._generated.models import ChatCompletion, ChatCompletionChunk, ChatCompletionRequest
from mindserve.api._generated.rules import RULES, Rule
from mindserve.api.request_model import RequestModel
from mindserve.config.settings import Dialect as DialectName
from mindserve.errors import CONTENT_ENCODING, MindserveError, RefusalKind, RequestRefused

INTERNAL_ERROR_TEXT: Final = "the server failed to answer; its log has the details"
"""For exceptions nobody foresaw: their own text might show what is nobody's business."""


class WireError(NamedTuple):
    """An error as it is sent: status, body and the headers that belong to it."""

    status: int
    body: msgspec.Struct
    headers: dict[str, str]


class StreamForm(Protocol):
    """How the chunks of one stream look on the wire."""

    has_full_text: bool
    """A chunk's content is all content so far (setting ``fullTextEnabled``)."""
    has_usage_chunk: bool
    """The token counts come in a chunk of their own behind all others."""

    def opening(self, chunk: ChatCompletionChunk) -> msgspec.Struct:
        """The first chunk of a choice."""

    def chunk(self, chunk: ChatCompletionChunk) -> msgspec.Struct:
        """Any other one."""


class Dialect(Protocol):
    """How requests are read, and how answers and errors look on the wire."""

    @property
    def requests(self) -> RequestModel:
        """What reads them."""

    @property
    def rules(self) -> Mapping[str, Rule]:
        """Those that a request must keep, in the order of the contract."""

    def completion(self, completion: ChatCompletion) -> msgspec.Struct:
        """The body of a complete answer."""

    def stream(self, request: ChatCompletionRequest, *, full_text: bool) -> StreamForm:
        """How the answer to ``request``, which this dialect has read, is streamed. ``full_text``: the setting."""

    def error(self, error: Exception) -> WireError:
        """A refusal or a failure before any header was sent."""

    def stream_error(self, error: Exception) -> msgspec.Struct:
        """The event that tells of a failure inside a stream; nothing follows it."""


def rules_of(name: DialectName) -> dict[str, Rule]:
    """The rules that hold in a dialect."""
    return {identifier: rule for identifier, rule in RULES.items() if name in rule.dialects}


def error_text(error: Exception) -> str:
    return str(error) if isinstance(error, MindserveError) else INTERNAL_ERROR_TEXT


def error_headers(error: Exception) -> dict[str, str]:
    if not isinstance(error, RequestRefused):
        return {}
    if error.kind is RefusalKind.TOO_LARGE:
        return {"Connection": "close"}  # the rest of the body is not read
    if error.kind is RefusalKind.UNAUTHORIZED:
        return {"WWW-Authenticate": error.challenge}
    if error.field == CONTENT_ENCODING:
        return {"Accept-Encoding": "identity"}  # a refusal says which encodings would do: RFC 9110, 15.5.16
    return {"Retry-After": str(error.retry_after_s)} if error.retry_after_s is not None else {}
