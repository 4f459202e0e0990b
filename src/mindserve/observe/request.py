"""One chat request as the metrics see it: received once, ended once."""

from __future__ import annotations

import enum

from mindserve.observe.metrics import Metrics


class Outcome(enum.StrEnum):
    SUCCESS = "success"
    FAILED = "failed"
    """Refused, or failed after admission."""
    ABORTED = "aborted"
    """The client left."""


class RequestObservation:
    """Counts one request into ``metrics``. ``end`` counts it once, however often it is called."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._arrived_at = metrics.clock()
        self._last_token_at: dict[int, float] = {}
        self._ended = False
        self.num_prompt_tokens = 0
        self.num_generated_tokens = 0
        self.outcome: Outcome | None = None
        self.reason: str | None = None
        """For the log: what made it fail, without anything that the client sent."""
        metrics.num_received += 1
        metrics.received.inc()

    @property
    def elapsed_s(self) -> float:
        return self._metrics.clock() - self._arrived_at

    def tokens(self, *, index: int, num_tokens: int, num_prompt_tokens: int) -> None:
        """``num_tokens`` came for sequence ``index``."""
        if not num_tokens:
            return
        metrics = self._metrics
        now = metrics.clock()
        last_at = self._last_token_at.get(index)
        if last_at is not None:
            metrics.next_token_s.add((now - last_at) / num_tokens)
        elif not self._last_token_at:
            self.num_prompt_tokens = num_prompt_tokens
            metrics.first_token_s.observe(now - self._arrived_at)
            metrics.prompt_tokens.inc(num_prompt_tokens)
            metrics.prompt_rate.add(num_prompt_tokens, now)
        self._last_token_at[index] = now
        self.num_generated_tokens += num_tokens
        metrics.generation_tokens.total += num_tokens
        metrics.generation_rate.add(num_tokens, now)

    def end(self, outcome: Outcome, reason: str | None = None) -> None:
        if self._ended:
            return
        self._ended = True
        self.outcome = outcome
        self.reason = reason
        metrics = self._metrics
        if outcome is Outcome.SUCCESS:
            metrics.success.inc()
            metrics.latency_s.observe(self.elapsed_s)
            metrics.request_prompt_tokens.observe(self.num_prompt_tokens)
            metrics.request_generation_tokens.observe(self.num_generated_tokens)
        elif outcome is Outcome.FAILED:
            metrics.num_failed += 1
            metrics.failed.inc()
        else:
            metrics.aborted.inc()
