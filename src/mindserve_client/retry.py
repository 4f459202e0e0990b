"""When a request is sent again, and after how long. Pure: who sleeps is up to the transport.

Nothing of an answer has been delivered when this is asked, so a retry repeats nothing for the caller; the server may
generate twice. Read timeouts are not repeated: a server that is too slow would only get more to do.
"""

from __future__ import annotations

import email.utils
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import httpx2

RETRIED_STATUSES: Final = frozenset({429, 503})
MAX_WAIT_S: Final = 60.0
"""A server that asks for more is not waited for."""
_FIRST_WAIT_S: Final = 0.5
_LONGEST_BACKOFF_S: Final = 8.0
_CONNECTION_FAULTS: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.ReadError,
    httpx2.WriteError,
    httpx2.CloseError,
    httpx2.RemoteProtocolError,
)


def wait_after_status(status: int, headers: Mapping[str, str], attempt: int, jitter: float) -> float | None:
    """Seconds until the next attempt, None for no more. ``attempt`` counts from 0, ``jitter`` is from [0, 1).

    ``Retry-After`` is obeyed in both its forms; without it waits grow.
    """
    if status not in RETRIED_STATUSES:
        return None
    wanted = retry_after_s(headers, datetime.now(UTC))
    if wanted is None:
        return backoff_s(attempt, jitter)
    return wanted if wanted <= MAX_WAIT_S else None


def wait_after_fault(fault: Exception, attempt: int, jitter: float) -> float | None:
    """The same, when no answer came."""
    return backoff_s(attempt, jitter) if isinstance(fault, _CONNECTION_FAULTS) else None


def backoff_s(attempt: int, jitter: float) -> float:
    """Doubles from half a second to eight, less up to a quarter, so that clients do not come back all at once."""
    longest: float = min(_FIRST_WAIT_S * 2 ** min(attempt, 16), _LONGEST_BACKOFF_S)
    return longest * (1 - jitter / 4)


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """``Retry-After`` in seconds, from a number or a date; None where it is absent or neither."""
    text = headers.get("retry-after", "").strip()
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = (email.utils.parsedate_to_datetime(text) - now).total_seconds()
        except (ValueError, TypeError):
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None
