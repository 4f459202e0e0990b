"""``GET /`` and ``GET /docs``."""

from __future__ import annotations

from typing import Any, Final

from litestar import Request, Response, get
from litestar.datastructures import State

from mindserve.api.dialect import dialect_asked
from mindserve.api.pages.compose import Page, docs, playground
from mindserve.api.server import server_of

_DIALECT: Final = "dialect"


@get("/")
async def get_playground(request: Request[Any, Any, State]) -> Response[bytes]:
    """The playground of a server with these settings."""
    settings = server_of(request).settings
    page = playground(
        settings.dialect,
        full_text=settings.full_text_enabled,
        media=settings.media,
        max_request_bytes=settings.max_request_bytes,
    )
    return _response(request, page)


@get("/docs")
async def get_docs(request: Request[Any, Any, State]) -> Response[bytes]:
    """The contract of the dialect that the query names, else of the server's own. Raises ``RequestRefused``."""
    asked = dialect_asked(request.query_params.getall(_DIALECT, []), place=_DIALECT)
    return _response(request, docs((asked or server_of(request).dialect).requests.dialect))


def _response(request: Request[Any, Any, State], page: Page) -> Response[bytes]:
    headers = {
        "ETag": page.etag,
        "Cache-Control": "no-cache",  # kept, and asked about each time
        "Content-Security-Policy": page.policy,
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    if _has_it(request.headers.getall("if-none-match", []), page.etag):
        return Response(b"", status_code=304, headers=headers)
    return Response(page.body, media_type="text/html", headers=headers)


def _has_it(values: list[str], etag: str) -> bool:
    """RFC 9110, 13.1.2: any of the tags, compared weakly, or ``*``."""
    tags = {tag.strip().removeprefix("W/") for value in values for tag in value.split(",")}
    return not tags.isdisjoint({etag, "*"})
