"""What vLLM's steps tell of times: taken where its core's messages arrive, before its own figures are made of them.

All stamps are seconds of one engine core's monotonic clock; only differences between stamps of one core are used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mindserve_engine.types import TokenTiming


@dataclass(slots=True)
class _Sequence:
    """One request of vLLM's."""

    timings: deque[TokenTiming] = field(default_factory=deque)
    """Of tokens that nobody has taken yet."""
    queued: float = 0.0
    scheduled: float = 0.0
    last: float = 0.0
    """Of its latest token; 0: none yet."""
    lost: float = 0.0
    """When it was preempted and has not come back; 0: it was not."""
    waited: float = 0.0
    """How long it waited to come back, since its latest token."""


class StepClock:
    """Timings of sequences, by the id under which each was handed to vLLM."""

    def __init__(self, name_of: Callable[[str], str | None]) -> None:
        """``name_of`` gives that id for the one that vLLM uses inside; None when it does not know it (any more)."""
        self._name_of = name_of
        self._sequences: dict[str, _Sequence] = {}
        self.num_preemptions = 0
        self.kv_usage = 0.0
        """Share of the KV blocks in use, as the latest step told."""

    def open(self, name: str) -> None:
        self._sequences[name] = _Sequence()

    def close(self, name: str) -> None:
        self._sequences.pop(name, None)

    def take(self, name: str, num_tokens: int) -> list[TokenTiming]:
        """The next timings of a sequence, which are there before its tokens are."""
        timings = self._sequences[name].timings
        return [timings.popleft() for _ in range(num_tokens)]

    def note(self, outputs: Any) -> None:
        """Take in one ``EngineCoreOutputs``."""
        stats = outputs.scheduler_stats
        if stats is not None:
            self.kv_usage = stats.kv_cache_usage
        rows = outputs.outputs
        if not rows:
            return
        details = getattr(stats, "iteration_details", None)  # vLLM 0.27 and later
        num_rows = sum(1 for row in rows if row.new_token_ids)
        batch_size = num_rows if details is None else details.num_ctx_requests + details.num_generation_requests
        elapsed_s = None if details is None else details.elapsed_ms / 1000
        for row in rows:
            name = self._name_of(row.request_id)
            sequence = None if name is None else self._sequences.get(name)
            if sequence is not None:
                self._events(sequence, row.events or ())
                if row.new_token_ids:
                    self._tokens(sequence, len(row.new_token_ids), outputs.timestamp, max(batch_size, 1), elapsed_s)

    def _events(self, sequence: _Sequence, events: Any) -> None:
        for event in events:
            kind = event.type.name
            if kind == "QUEUED":
                sequence.queued = event.timestamp
            elif kind == "PREEMPTED":
                self.num_preemptions += 1
                sequence.lost = event.timestamp
            elif kind == "SCHEDULED" and sequence.lost:
                sequence.waited += max(0.0, event.timestamp - sequence.lost)
                sequence.lost = 0.0
            elif kind == "SCHEDULED" and not sequence.scheduled:
                sequence.scheduled = event.timestamp

    @staticmethod
    def _tokens(sequence: _Sequence, number: int, now: float, batch_size: int, elapsed_s: float | None) -> None:
        """Tokens that one step brought together (speculation) share its time."""
        if sequence.last:
            gap = max(0.0, now - sequence.last)
            wait = sequence.waited if elapsed_s is None else max(0.0, gap - elapsed_s)
        else:
            began = sequence.scheduled or now
            gap = max(0.0, now - began)
            wait = max(0.0, began - (sequence.queued or began))
        sequence.last, sequence.waited = now, 0.0
        for place in range(number):
            wait_us = round(wait * 1e6) if place == 0 else 0
            sequence.timings.append(TokenTiming(wait_us, batch_size, gap * 1000 / number))
