"""Takes secrets out of what is written: values of headers that a run was given, and of headers that carry keys."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

REDACTED: Final = "[redacted]"
CUT: Final = "…"
"""Where texts were shortened: a secret may have been cut in two."""
MIN_SECRET_LENGTH: Final = 4
"""Shorter header values occur by chance in any text."""
_SECRET_NAMES: Final = re.compile(r"auth|key|token|secret|cookie|password|credential", re.IGNORECASE)
_BEARER: Final = re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{6,}")


def redacted(text: str, secrets: frozenset[str]) -> str:
    """A text without the secrets, whole or without their scheme (``Bearer``)."""
    text = text.encode("utf-8", "backslashreplace").decode()  # half a surrogate pair fits no file
    spellings = {
        spelling for secret in secrets for part in (secret, secret.rpartition(" ")[2]) for spelling in _spellings(part)
    }
    for spelling in sorted(spellings, key=len, reverse=True):
        text = text.replace(spelling, REDACTED)
        for size in range(len(spelling) - 1, MIN_SECRET_LENGTH - 1, -1) if CUT in text else ():
            text = text.replace(spelling[:size] + CUT, REDACTED + CUT)
    return _BEARER.sub(rf"\1 {REDACTED}", text)


def _spellings(secret: str) -> Iterator[str]:
    """As it is, and as it stands in JSON."""
    if len(secret) >= MIN_SECRET_LENGTH:
        yield secret
        yield json.dumps(secret)[1:-1]
        yield json.dumps(secret, ensure_ascii=False)[1:-1]


def redacted_headers(headers: Mapping[str, str], secrets: frozenset[str]) -> dict[str, str]:
    """Headers, those that carry secrets without their values."""
    return {
        name: REDACTED if _SECRET_NAMES.search(name) or value in secrets else redacted(value, secrets)
        for name, value in headers.items()
    }
