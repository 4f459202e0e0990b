"""Reading a request body within its byte limit."""

from __future__ import annotations

from typing import Any, Final

from litestar import Request
from litestar.datastructures import State
from litestar.exceptions import HTTPException, InternalServerException
from litestar.status_codes import HTTP_413_REQUEST_ENTITY_TOO_LARGE

from mindserve.api.inflight import ClientGone
from mindserve.chat.media.budget import Lease
from mindserve.errors import RefusalKind, RequestRefused

UNCOUNTED_BYTES: Final = 1024 * 1024
"""Of every body: those without media are rarely longer."""


async def read_body(request: Request[Any, Any, State], limit: int, lease: Lease) -> bytes:
    """The body, at most ``limit`` bytes (the framework's own limit is set to the same). What is longer than
    ``UNCOUNTED_BYTES`` is held by ``lease`` from then on.

    Raises ``RequestRefused``, TOO_LARGE from the Content-Length before anything is read, where one is given, and
    OVERLOADED when all requests together hold too much; ``ClientGone`` when the client leaves while sending.
    """
    try:
        return await _read(request, lease)
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


async def _read(request: Request[Any, Any, State], lease: Lease) -> bytes:
    """``request.body()`` of the framework would hold the body until the answer has been sent."""
    pieces: list[bytes] = []
    num_bytes = 0
    async for piece in request.stream():
        num_bytes += len(piece)
        if num_bytes > UNCOUNTED_BYTES:
            lease.take(len(piece))
        pieces.append(piece)
    return b"".join(pieces)
