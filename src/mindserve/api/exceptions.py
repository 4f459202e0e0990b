"""Exceptions to responses: three handlers, all of which let the dialect decide how an error looks."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from litestar import Request, Response
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.types import ExceptionHandlersMap

from mindserve.api.dialect import Dialect
from mindserve.api.edge import uuid_of
from mindserve.api.inflight import ClientGone
from mindserve.api.server import dialect_of, server_of
from mindserve.errors import MindserveError, RefusalKind, RequestRefused, shown
from mindserve.observe.logs import fields

_LOG: Final = logging.getLogger(__name__)
_CLIENT_CLOSED_REQUEST: Final = 499
"""Nobody reads it; it stands in access logs."""

AnyRequest = Request[Any, Any, State]


def mindserve_error(request: AnyRequest, error: MindserveError) -> Response[bytes]:
    """What the server raises on purpose."""
    if isinstance(error, ClientGone):
        return Response(b"", status_code=_CLIENT_CLOSED_REQUEST)
    return _error_response(request, error, {})


def http_error(request: AnyRequest, error: HTTPException) -> Response[bytes]:
    """What the framework raises: unknown paths, wrong methods, bad parameters."""
    path = shown(request.scope["path"])
    refusals = {
        404: (RefusalKind.NOT_FOUND, f"there is nothing at the path {path}"),
        405: (RefusalKind.METHOD_NOT_ALLOWED, f"{request.scope['method']} is not allowed at the path {path}"),
        413: (RefusalKind.TOO_LARGE, "the request body is too large"),
    }
    if error.status_code in refusals:
        kind, text = refusals[error.status_code]
        return _error_response(request, RequestRefused(text, kind=kind), error.headers or {})
    if error.status_code < 500:
        return _error_response(request, RequestRefused(error.detail), error.headers or {})
    return unforeseen_error(request, error)


def unforeseen_error(request: AnyRequest, error: Exception) -> Response[bytes]:
    """A bug. The client learns that it was one, the log learns which."""
    _LOG.error("unforeseen error", exc_info=error, extra=fields(request=uuid_of(request.scope)))
    return _error_response(request, error, {})


def _error_response(request: AnyRequest, error: Exception, headers: Mapping[str, str]) -> Response[bytes]:
    wire = _dialect_of(request).error(error)
    return Response(
        msgspec.json.encode(wire.body),
        status_code=wire.status,
        media_type="application/json",
        headers={**headers, **wire.headers},
    )


def _dialect_of(request: AnyRequest) -> Dialect:
    """Whatever the error is, one about the header included."""
    try:
        return dialect_of(request)
    except RequestRefused:
        return server_of(request).dialect


EXCEPTION_HANDLERS: Final[ExceptionHandlersMap] = {
    MindserveError: mindserve_error,
    HTTPException: http_error,
    Exception: unforeseen_error,
}
