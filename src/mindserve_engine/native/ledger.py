"""What one engine instance is working on, and the figures it last told, as the client side knows them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from mindserve_engine.generation import QueuedGeneration
from mindserve_engine.native.wire import Step
from mindserve_engine.types import EngineStats, GenerationRequest

_COUNTERS = tuple(name for name in EngineStats.__struct_fields__ if name.endswith("_total"))


class Ledger:
    """Requests in flight and figures, over the lives of an instance's processes."""

    def __init__(self, *, max_batch_size: int) -> None:
        self._max_batch_size = max_batch_size
        self._in_flight: dict[str, QueuedGeneration] = {}
        self._promised_blocks = 0
        """Blocks that requests will need which the figures do not show yet."""
        self._stats = EngineStats()
        self._past = EngineStats()
        """Counters of the processes that have ended."""

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._in_flight

    def __len__(self) -> int:
        """Requests the process holds resources for: aborted ones count until it has dropped them."""
        return len(self._in_flight)

    @property
    def num_media_bytes(self) -> int:
        """Pixels and samples of the requests in flight."""
        return sum(generation.num_media_bytes for generation in self._in_flight.values())

    @property
    def num_waiting(self) -> int:
        """Requests beyond what the process can run at once, as far as its last figures show that."""
        return max(0, len(self._in_flight) - self._num_runnable)

    @property
    def has_place(self) -> bool:
        """Whether one more request would not have to wait for another to end."""
        return len(self._in_flight) < self._num_runnable

    @property
    def _num_runnable(self) -> int:
        return self._stats.num_running if self._stats.num_waiting else self._max_batch_size

    @property
    def num_free_blocks(self) -> int:
        return self._stats.num_free_blocks - self._promised_blocks

    def open(
        self, request: GenerationRequest, abort: Callable[[str, int | None], None], block_size: int
    ) -> QueuedGeneration:
        """Note a request that is sent to the process now."""
        generation = QueuedGeneration(request, abort)
        self._in_flight[request.request_id] = generation
        self._promised_blocks += -(-len(request.prompt_token_ids) // max(1, block_size))
        return generation

    def take(self, step: Step) -> None:
        """Hand the step's events to their requests."""
        self.update(step.stats)
        in_flight = self._in_flight
        for event in step.events:
            generation = in_flight.get(event.request_id)
            if generation is not None and generation.push(event):
                del in_flight[event.request_id]
        for request_id in step.aborted:
            in_flight.pop(request_id, None)

    def update(self, stats: EngineStats) -> None:
        self._stats = stats
        self._promised_blocks = 0

    def fail_all(self, reason: str) -> None:
        """The process is gone, and everything it was working on."""
        lost, self._in_flight = self._in_flight, {}
        for generation in lost.values():
            generation.fail(reason)
        self._past = add_counters(self._past, self._stats)
        self.update(EngineStats())

    def count_restart(self) -> None:
        self._past = msgspec.structs.replace(self._past, num_restarts_total=self._past.num_restarts_total + 1)

    def stats(self) -> EngineStats:
        """The figures of now, with counters over all processes there have been.

        The process tells its own after each step. What has been sent to it meanwhile waits, however long the step."""
        num_waiting = max(0, len(self._in_flight) - self._stats.num_running)
        return msgspec.structs.replace(add_counters(self._stats, self._past), num_waiting=num_waiting)


def add_counters(stats: EngineStats, other: EngineStats) -> EngineStats:
    """``stats`` with the counters of ``other`` added to its own."""
    return msgspec.structs.replace(stats, **{name: getattr(stats, name) + getattr(other, name) for name in _COUNTERS})


def total(parts: list[EngineStats]) -> EngineStats:
    """The sum of all figures of several instances."""
    names = EngineStats.__struct_fields__
    return EngineStats(**{name: sum(getattr(stats, name) for stats in parts) for name in names})
