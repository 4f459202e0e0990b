"""What can go wrong, as one tree:

MindserveError
├── InvalidRequest            refused here, before anything was sent; names the field
├── APIConnectionError        no answer came, or it broke off
│   └── APITimeoutError
├── InvalidResponse           what came is not what the contract says
│   ├── EventTooLarge
│   └── StreamIncomplete      a stream ended without its end mark
├── StreamFailed              the server told in the stream that it failed
└── APIStatusError            the server answered with another status than 200
    ├── BadRequest 400, Unauthorized 401, NotFound 404, MethodNotAllowed 405, ContentTooLarge 413,
    ├── UnsupportedMediaType 415, ValidationFailed 422, TooManyRequests 429, HeadersTooLarge 431
    └── GenerationFailed 500, Unavailable 503
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final


class MindserveError(Exception):
    """Anything this package raises on its own account."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a request. ``field``: its path, such as ``messages[0].content``; "" for the whole."""

    field: str
    message: str


class InvalidRequest(MindserveError, ValueError):
    """The request breaks the contract; nothing was sent."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(fault.message for fault in faults))
        self.faults: Final = tuple(faults)

    @property
    def field(self) -> str:
        """The path of the first fault."""
        return self.faults[0].field


class APIConnectionError(MindserveError):
    """The server could not be reached, or the connection broke before the answer was complete."""


class APITimeoutError(APIConnectionError):
    """A limit of ``timeout`` passed."""


class InvalidResponse(MindserveError):
    """What came is not what the contract says. ``text``: the beginning of it."""

    def __init__(self, message: str, text: str = "") -> None:
        super().__init__(message)
        self.text: Final = text


class EventTooLarge(InvalidResponse):
    """An event of a stream goes on beyond the limit ``max_event_bytes``."""

    def __init__(self, max_event_bytes: int) -> None:
        super().__init__(f"an event of the stream is longer than max_event_bytes ({max_event_bytes})")
        self.max_event_bytes: Final = max_event_bytes


class StreamIncomplete(InvalidResponse):
    """The stream ended without ``[DONE]``: what came may not be all."""


@dataclass(frozen=True, slots=True)
class ErrorDetails:
    """What a server says of an error, whichever dialect it says it in."""

    message: str
    type: str | None = None
    """``error_type`` of the vllm dialect, ``type`` of the openai dialect."""
    param: str | None = None
    """The field at fault; openai dialect only."""
    code: str | None = None
    """A word for programs; openai dialect only."""


class _Told(MindserveError):
    """An error that the server told."""

    def __init__(self, details: ErrorDetails, text: str = "") -> None:
        super().__init__(text or details.message)
        self.details: Final = details

    @property
    def message(self) -> str:
        """The server's words."""
        return self.details.message

    @property
    def type(self) -> str | None:
        """See ``ErrorDetails``."""
        return self.details.type

    @property
    def param(self) -> str | None:
        """See ``ErrorDetails``."""
        return self.details.param

    @property
    def code(self) -> str | None:
        """See ``ErrorDetails``."""
        return self.details.code


class StreamFailed(_Told):
    """The server failed in the middle of a stream; what had come before was delivered."""


class APIStatusError(_Told):
    """The server refused or failed. Statuses that the contract does not know raise this class itself."""

    status: ClassVar[int] = 0
    """The status of the contract that the class stands for."""

    def __init__(self, status_code: int, headers: Mapping[str, str], details: ErrorDetails) -> None:
        super().__init__(details, f"{status_code}: {details.message}")
        self.status_code: Final = status_code
        self.headers: Final = headers


class BadRequest(APIStatusError):
    """A refused request in the openai dialect; what is no HTTP/1.1 in both."""

    status = 400


class Unauthorized(APIStatusError):
    """The server has API keys, and none of them was given."""

    status = 401


class NotFound(APIStatusError):
    """No such path; in the openai dialect also no such model."""

    status = 404


class MethodNotAllowed(APIStatusError):
    """The path exists, the method does not."""

    status = 405


class ContentTooLarge(APIStatusError):
    """The body exceeds the server's limit of bytes."""

    status = 413


class UnsupportedMediaType(APIStatusError):
    """Something between here and the server changed the type or the encoding of the body."""

    status = 415


class ValidationFailed(APIStatusError):
    """A refused request in the vllm dialect."""

    status = 422


class TooManyRequests(APIStatusError):
    """A full queue, or too many connections, in the openai dialect."""

    status = 429


class HeadersTooLarge(APIStatusError):
    """The head of the request exceeds 65,536 bytes."""

    status = 431


class GenerationFailed(APIStatusError):
    """The engine failed, or a time limit of the server passed, before anything was sent."""

    status = 500


class Unavailable(APIStatusError):
    """Loading, restarting, shutting down; in the vllm dialect also a full queue."""

    status = 503


STATUS_ERRORS: Final[Mapping[int, type[APIStatusError]]] = {
    error.status: error for error in APIStatusError.__subclasses__()
}
"""By status."""
