"""When a request is sent again, and how long after."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mindserve_client.retry import (
    MAX_WAIT_S,
    backoff_s,
    retry_after_s,
    wait_after_fault,
    wait_after_status,
)

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("7", 7.0),
        ("0.25", 0.25),
        ("-5", 0.0),
        ("Thu, 01 Jan 2026 12:00:30 GMT", 30.0),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 0.0),
        ("Thu, 01 Jan 2026 12:00:30 -0000", None),
        ("soon", None),
        ("", None),
        ("nan", None),
        ("inf", None),
    ],
)
def test_retry_after_in_both_its_forms(text: str, seconds: float | None) -> None:
    assert retry_after_s({"retry-after": text}, NOW) == seconds


def test_without_the_header() -> None:
    assert retry_after_s({}, NOW) is None


@pytest.mark.parametrize("status", [429, 503])
def test_overload_is_waited_for(status: int) -> None:
    assert wait_after_status(status, httpx2.Headers({"Retry-After": "3"}), 0, 0.5) == 3.0
    assert wait_after_status(status, {}, 1, 0.0) == backoff_s(1, 0.0) == 1.0
    assert wait_after_status(status, {"retry-after": str(MAX_WAIT_S)}, 0, 0.0) == MAX_WAIT_S
    assert wait_after_status(status, {"retry-after": str(MAX_WAIT_S + 1)}, 0, 0.0) is None


@pytest.mark.parametrize("status", [200, 400, 401, 404, 413, 422, 500, 502])
def test_nothing_else_is(status: int) -> None:
    assert wait_after_status(status, {"retry-after": "3"}, 0, 0.5) is None


@given(st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_waits_grow_to_a_limit(attempt: int, jitter: float) -> None:
    assert 0.375 <= backoff_s(attempt, jitter) <= 8.0
    assert backoff_s(attempt + 1, jitter) >= backoff_s(attempt, jitter)


@pytest.mark.parametrize(
    ("fault", "is_retried"),
    [
        (httpx2.ConnectError(""), True),
        (httpx2.ConnectTimeout(""), True),
        (httpx2.RemoteProtocolError(""), True),
        (httpx2.ReadError(""), True),
        (httpx2.ReadTimeout(""), False),
        (httpx2.WriteTimeout(""), False),
        (httpx2.PoolTimeout(""), False),
        (httpx2.LocalProtocolError(""), False),
        (httpx2.ProxyError(""), False),
    ],
)
def test_broken_connections_are_tried_again_and_slow_ones_not(fault: Exception, is_retried: bool) -> None:
    assert (wait_after_fault(fault, 0, 0.0) is not None) == is_retried
