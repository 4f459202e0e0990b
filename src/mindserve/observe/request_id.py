"""The id that ties a request to its log lines: MindIE's ``RequestUUID`` response header."""

from __future__ import annotations

import re
import uuid
from typing import Final

RESPONSE_HEADER: Final = "RequestUUID"
REQUEST_HEADER: Final = "X-Request-Id"
"""A client's or a proxy's own id; used instead of a new one when it is plain enough for a log line."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def request_uuid(from_client: str | None) -> str:
    """The client's id if it is one of 1..128 plain characters, else a new one."""
    if from_client is not None and _PLAIN.fullmatch(from_client):
        return from_client
    return uuid.uuid4().hex
