"""Everything the server raises on purpose, free of any framework.

MindserveError
├── StartupError             the server cannot start; one clear line, exit code 2
│   └── EngineDidNotStart    the engine died or hung; exit code 1: another start may go well
├── MediaRejected            an image, a video or a recording cannot be taken (``mindserve.chat.media``)
├── PoolUnavailable          no process can decode media now (``mindserve.chat.media``)
├── RequestRefused           nothing was generated: the caller's fault, or no room now (``kind`` tells)
└── EngineFault              an admitted request could not be finished
    └── GenerationTimeout    tokenTimeout or e2eTimeout ran out

Which status and body each becomes on the wire is decided by ``mindserve.api.dialect`` alone.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_MAX_SHOWN_CHARACTERS: Final = 64
CONTENT_ENCODING: Final = "Content-Encoding"
"""The field of a refusal of this header."""


class MindserveError(Exception):
    """Root of the tree. The text is for people and may be shown to the client."""


class StartupError(MindserveError):
    """The server cannot start. The text is one line that names what to change; the process exits with 2."""


class EngineDidNotStart(StartupError):
    """Whoever supervises the server should start it again; the process exits with 1."""


class RefusalKind(enum.Enum):
    """Why a request was refused; each kind has one status per dialect."""

    VALIDATION = "validation"
    """A field, or the body as a whole, breaks the contract."""
    UNAUTHORIZED = "unauthorized"
    """The request has none of the server's API keys."""
    MODEL_NOT_FOUND = "model_not_found"
    """A request's ``model`` is no served name."""
    MODEL_PATH_NOT_FOUND = "model_path_not_found"
    """The model of a path is none."""
    CONTEXT_LENGTH = "context_length"
    """The prompt has more tokens than the server takes."""
    OVERLOADED = "overloaded"
    """The queue is full: the same request may be taken later."""
    UNAVAILABLE = "unavailable"
    """Loading, draining or failed: this server takes no work now."""
    TOO_LARGE = "too_large"
    """The body has more bytes than the server reads."""
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    NOT_FOUND = "not_found"
    """No such path."""
    METHOD_NOT_ALLOWED = "method_not_allowed"
    MALFORMED_HTTP = "malformed_http"
    """What came is no HTTP/1.1 request; the connection closes."""
    HEADERS_TOO_LARGE = "headers_too_large"
    """The request line and the header fields have more bytes than the server reads; the connection closes."""


class RequestRefused(MindserveError):
    """The request was not carried out; no state is left of it.

    ``message`` names the field, the bound and the value received. ``field`` is its path ("messages[0].content").
    ``retry_after_s``: seconds after which trying again makes sense (OVERLOADED, UNAVAILABLE). ``challenge``: which
    credentials would do, as the header WWW-Authenticate says it (UNAUTHORIZED).
    """

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        kind: RefusalKind = RefusalKind.VALIDATION,
        retry_after_s: int | None = None,
        challenge: str = "Bearer",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.kind = kind
        self.retry_after_s = retry_after_s
        self.challenge = challenge


class EngineFault(MindserveError):
    """An admitted request could not be finished. Sending it again may work."""


class GenerationTimeout(EngineFault):
    """A time limit of the configuration ran out; ``setting`` is its name there (tokenTimeout, e2eTimeout)."""

    def __init__(self, *, setting: str, limit_s: float) -> None:
        super().__init__(f"the request was given up: {setting} of {limit_s:g} s ran out")
        self.setting = setting
        self.limit_s = limit_s


def field_path(location: Sequence[str | int]) -> str:
    """A place in a request or a config as error texts name it: ``("messages", 0, "role")`` is ``messages[0].role``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location).removeprefix(".")


@dataclass(frozen=True, slots=True)
class NumberText:
    """A JSON number as it was written: shown as such, whatever its size."""

    text: str


def shown(value: object) -> str:
    """``value`` as error texts show it: JSON, cut when it is long; of lists and objects only what they are."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"a list of {len(value)} items" if len(value) != 1 else "a list of 1 item"
    start = value[: _MAX_SHOWN_CHARACTERS + 1] if isinstance(value, str) else value
    text = value.text if isinstance(value, NumberText) else json.dumps(start, ensure_ascii=False)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"
