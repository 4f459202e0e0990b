"""The guard of what only callers with a key may use (reading H9)."""

from __future__ import annotations

from typing import Any, Final

from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.handlers.base import BaseRouteHandler

from mindserve.errors import RefusalKind, RequestRefused

_SCHEME: Final = "bearer"
_REALM: Final = 'Bearer realm="mindserve"'


def require_api_key(connection: ASGIConnection[Any, Any, Any, State], handler: BaseRouteHandler) -> None:
    """Raise ``RequestRefused`` (UNAUTHORIZED) when the server has keys and the request gives none of them."""
    keys = connection.app.state.server.settings.api_keys
    if keys is None:
        return
    values = connection.headers.getall("authorization", [])
    if not values:
        raise _refused("this server wants an API key: Authorization: Bearer <key>", _REALM)
    scheme, _, key = values[0].partition(" ")
    if len(values) > 1 or scheme.lower() != _SCHEME or not key.strip():
        raise _refused("Authorization must be given once, as: Bearer <key>", f'{_REALM}, error="invalid_request"')
    if not keys.knows(key.strip()):
        raise _refused("the API key is not one of this server's", f'{_REALM}, error="invalid_token"')


def _refused(text: str, challenge: str) -> RequestRefused:
    return RequestRefused(text, field="Authorization", kind=RefusalKind.UNAUTHORIZED, challenge=challenge)
