"""The one place that owns the difference between the two dialects of the API (setting ``openAiSupport``, header
``X-Mindserve-Dialect``).

Every request is read, every answer, event and error written by a ``Dialect``; nothing else branches on it.

| what went wrong           | ``vllm``                      | ``openai``                             |
|---------------------------|-------------------------------|----------------------------------------|
| a field, the body         | 422 Input Validation Error    | 400 invalid_request_error              |
| no valid API key          | 401 Unauthorized              | 401 ... code invalid_api_key           |
| unknown model             | 422 Input Validation Error    | 404 ... code model_not_found           |
| prompt too long           | 422 Input Validation Error    | 400 ... code context_length_exceeded   |
| queue full                | 503 Service Unavailable       | 429 rate_limit_error                   |
| loading, draining, failed | 503 Service Unavailable       | 503 server_error                       |
| engine failure            | 500 Incomplete Generation     | 500 server_error                       |

What is no HTTP, and heads that are too large, are 400 and 431 in both; so are 404, 405, 413 and 415.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mindserve.api.dialect.openai import OpenAIDialect
from mindserve.api.dialect.parts import Dialect, StreamForm, WireError
from mindserve.api.dialect.vllm import VllmDialect
from mindserve.config.settings import Dialect as DialectName
from mindserve.errors import RequestRefused, shown

__all__ = ["DIALECT_HEADER", "Dialect", "StreamForm", "WireError", "dialect_asked", "dialect_named"]

DIALECT_HEADER: Final = "X-Mindserve-Dialect"
_DIALECTS: Final[dict[str, Dialect]] = {DialectName.VLLM: VllmDialect(), DialectName.OPENAI: OpenAIDialect()}


def dialect_named(name: DialectName) -> Dialect:
    return _DIALECTS[name]


def dialect_asked(values: Sequence[str], *, place: str = DIALECT_HEADER) -> Dialect | None:
    """What the values of a request's header fields ``X-Mindserve-Dialect`` ask for; None: it has none. ``place``: where
    they stand, if not there. Raises ``RequestRefused``."""
    if not values:
        return None
    found = _DIALECTS.get(values[0]) if len(set(values)) == 1 else None
    if found is None:
        names = " or ".join(_DIALECTS)
        raise RequestRefused(f"{place} must be {names}, got {shown(', '.join(values))}", field=place)
    return found
