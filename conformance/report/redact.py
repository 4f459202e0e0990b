"""Takes secrets out of what is written: values of headers that a run was given, and of headers that carry keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

REDACTED: Final = "[redacted]"
MIN_SECRET_LENGTH: Final = 4
"""Shorter header values occur by chance in any text."""
_SECRET_NAMES: Final = re.compile(r"auth|key|token|secret|cookie|password|credential", re.IGNORECASE)
_BEARER: Final = re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{6,}")


def redacted(text: str, secrets: frozenset[str]) -> str:
    """A text without the secrets, whole or without their scheme (``Bearer``)."""
    parts = {
        part for secret in secrets for part in (secret, secret.rpartition(" ")[2]) if len(part) >= MIN_SECRET_LENGTH
    }
    for part in sorted(parts, key=len, reverse=True):
        text = text.replace(part, REDACTED)
    return _BEARER.sub(rf"\1 {REDACTED}", text)


def redacted_headers(headers: Mapping[str, str], secrets: frozenset[str]) -> dict[str, str]:
    """Headers, those that carry secrets without their values."""
    return {
        name: REDACTED if _SECRET_NAMES.search(name) or value in secrets else redacted(value, secrets)
        for name, value in headers.items()
    }
