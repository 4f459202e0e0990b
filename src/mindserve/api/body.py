"""Reading a request body within its byte limit."""

from __future__ import annotations

from typing import Any

from litestar import Request
from litestar.datastructures import State
from litestar.exceptions import HTTPException, InternalServerException
from litestar.status_codes import HTTP_413_REQUEST_ENTITY_TOO_LARGE

from mindserve.api.inflight import ClientGone
from mindserve.errors import RefusalKind, RequestRefused


async def read_body(request: Request[Any, Any, State], limit: int) -> bytes:
    """The body, at most ``limit`` bytes (the framework's own limit is set to the same).

    Raises ``RequestRefused`` (TOO_LARGE) from the Content-Length before anything is read, where one is given, and
    ``ClientGone`` when the client leaves while sending.
    """
    try:
        # The framework's own request.body() would hold it until the answer has been sent.
        return b"".join([piece async for piece in request.stream()])
    except HTTPException as error:
        if error.status_code != HTTP_413_REQUEST_ENTITY_TOO_LARGE:
            if isinstance(error, InternalServerException):  # how the framework tells of a disconnect
                raise ClientGone from error
            raise
        length = request.headers.get("content-length")
        measured = f", Content-Length says {length}" if length is not None else ""
        raise RequestRefused(
            f"the request body is larger than {limit} bytes (setting maxRequestLength){measured}",
            kind=RefusalKind.TOO_LARGE,
        ) from error
