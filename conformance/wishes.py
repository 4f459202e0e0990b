"""What a request asks for, as the readings understand it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Wishes:
    """Mixed into whatever has a request."""

    asked: Mapping[str, Any] | None
    """The request's JSON, if it was JSON."""

    def get(self, name: str, default: Any = None) -> Any:
        """A parameter of the request; null is absent."""
        value = (self.asked or {}).get(name)
        return default if value is None else value

    @property
    def is_stream(self) -> bool:
        return bool(self.get("stream", False))

    @property
    def has_beams(self) -> bool:
        return bool(self.get("use_beam_search", False))

    @property
    def wants_usage(self) -> bool:
        """Of a stream (D1)."""
        return self.get("stream_options", {}).get("include_usage") is True

    @property
    def num_choices(self) -> int:
        """R7."""
        n = self.get("n", 1)
        return int(n if self.has_beams else self.get("best_of", n))

    @property
    def num_top(self) -> int | None:
        """R11; None: no log-probabilities."""
        top = self.get("top_logprobs")
        return int(top or 0) if self.get("logprobs", top is not None) else None
