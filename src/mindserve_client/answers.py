"""From the bytes of an answer to models and errors. Pure; whoever reads the bytes calls this."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from mindserve_client.errors import (
    STATUS_ERRORS,
    APIStatusError,
    ErrorDetails,
    InvalidResponse,
    StreamFailed,
)

ModelT = TypeVar("ModelT", bound=BaseModel)

DONE: Final = "[DONE]"
_MAX_TEXT: Final = 500


def parse(model: type[ModelT], body: bytes | str) -> ModelT:
    """Raises ``InvalidResponse`` with the first thing that is not as the contract says."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        message = f"the answer is no {model.__name__}: {place + ': ' if place else ''}{first['msg']}"
        raise InvalidResponse(message, _beginning(body)) from error


def parse_event(model: type[ModelT], data: str) -> ModelT:
    """A chunk of a stream. Raises ``StreamFailed`` for the event that tells of a failure, else as ``parse``."""
    try:
        return parse(model, data)
    except InvalidResponse:
        details = _details(_json(data))
        if details is None:
            raise
        raise StreamFailed(details) from None


def status_error(status: int, headers: Mapping[str, str], body: bytes) -> APIStatusError:
    """The error for an answer that is none, whoever wrote it: a proxy's page is told as text."""
    details = _details(_json(body)) or ErrorDetails(_beginning(body).strip() or "no reason given")
    return STATUS_ERRORS.get(status, APIStatusError)(status, headers, details)


def _json(body: bytes | str) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _details(body: object) -> ErrorDetails | None:
    """Read leniently: a new class of errors must not hide the text. ``error`` is a text or an object, by dialect."""
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(body, dict) and isinstance(error, str):
        return ErrorDetails(error, type=_text(body.get("error_type")))
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        particulars = {name: _text(error.get(name)) for name in ("type", "param", "code")}
        return ErrorDetails(error["message"], **particulars)
    return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _beginning(body: bytes | str) -> str:
    if isinstance(body, bytes):
        body = body[: 4 * _MAX_TEXT].decode("utf-8", "replace")
    return body[:_MAX_TEXT]
