"""What happens to every request before it is routed and to every response as it leaves."""

from __future__ import annotations

import re
from typing import Any, Final

from litestar import Litestar
from litestar.types import Message, Scope

from mindserve.observe.request_id import REQUEST_HEADER, RESPONSE_HEADER, request_uuid

_SLASHES: Final = re.compile(r"/{2,}")
_UUID_STATE: Final = "request_uuid"


def normal_path(path: str) -> str:
    """Duplicate slashes collapsed and the trailing one dropped: clients join base URLs carelessly."""
    return _SLASHES.sub("/", path).rstrip("/") or "/"


def uuid_of(scope: Scope) -> str:
    """The id that ``EdgeApp`` gave this request."""
    identifier: str = scope["state"][_UUID_STATE]
    return identifier


class EdgeApp(Litestar):
    """Litestar with a forgiving path, HEAD wherever there is GET, and the ``RequestUUID`` header on every response."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        headers = dict(scope["headers"])
        from_client = headers.get(REQUEST_HEADER.lower().encode())
        identifier = request_uuid(from_client.decode("latin-1") if from_client else None)
        # A copy: the server still sees HEAD in its own scope and drops the body itself.
        inner: Any = {
            **scope,
            "path": normal_path(scope["path"]),
            "method": "GET" if scope["method"] == "HEAD" else scope["method"],
            "state": {**(scope.get("state") or {}), _UUID_STATE: identifier},
        }
        header = (RESPONSE_HEADER.encode(), identifier.encode())

        async def send_identified(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], header]
            await send(message)

        await super().__call__(inner, receive, send_identified)
