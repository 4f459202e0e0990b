"""What a run is asked to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from conformance.profile import Profile

DEFAULT_CONCURRENCY: Final = 4
MAX_BODY_BYTES: Final = 8 << 20
MAX_EVENTS: Final = 20_000
REQUEST_TIMEOUT_S: Final = 60.0
TOTAL_TIMEOUT_S: Final = 3600.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A run: which server, which cases, at what pace, within which bounds."""

    base_url: str
    """Without the path: ``http://host:port``."""
    model: str
    """The base model's name, as requests give it."""
    only: frozenset[str] | None = None
    """Ids of cases or glob patterns of ids; None: all."""
    profile: Profile = field(default_factory=Profile)
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with every request. Their values appear in no report."""
    rate: float | None = None
    """Most requests a second; None: the profile's, or no limit."""
    concurrency: int | None = None
    """Most requests at a time; None: the profile's, or 4."""
    request_timeout_s: float | None = None
    """For one request with all of its answer; None: the profile's, or 60."""
    total_timeout_s: float | None = None
    """For the run; cases not done by then are told as unreachable. None: the profile's, or 3600."""
    max_body_bytes: int = MAX_BODY_BYTES
    max_events: int = MAX_EVENTS
    verify: bool = True
    """Whether the server's TLS certificate is checked."""


def headers_of(settings: Settings) -> dict[str, str]:
    """What is sent with every request; the settings' own win over the profile's."""
    return {**settings.profile.headers, **settings.headers}
