"""The engine's loop: schedule, run, take the tokens. Everything a request meets between arrival and its last token."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from mindserve_engine.interface import EngineError
from mindserve_engine.native.batch import Runner, Sampled, StepBatch
from mindserve_engine.native.block_pool import BlockPool, PoolCorrupted
from mindserve_engine.native.flatten import flatten
from mindserve_engine.native.kv_cache import KvCache
from mindserve_engine.native.scheduler import Schedule, Scheduler
from mindserve_engine.native.sequence import Sequence
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import EngineInfo, EngineStats, GenerationRequest, SequenceEvent, TokenTiming

MAX_FAILED_STEPS: Final = 3
"""So many failed steps in a row are the engine's fault, not the requests'."""

log = logging.getLogger(__name__)


class LoopBroken(Exception):
    """The loop cannot go on; the process must be replaced."""


@dataclass(slots=True)
class StepResult:
    """What one step produced."""

    events: list[SequenceEvent] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """Requests lost with the step; their resources are free again."""


class EngineLoop:
    """Runs requests on one runner. One thread uses it."""

    def __init__(
        self,
        runner: Runner,
        info: EngineInfo,
        options: EngineOptions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        capacity = runner.num_blocks * runner.block_size
        if info.max_context > capacity:  # a sequence that outgrows the pool would wait for ever
            raise EngineError(f"the KV cache holds {capacity} tokens, fewer than the context of {info.max_context}")
        self._runner = runner
        self._info = info
        self._clock = clock
        self._sequences: dict[str, Sequence] = {}
        self._ids = itertools.count()
        self._num_failed_steps = 0
        self._pool = BlockPool(runner.num_blocks)
        self._kv_cache = KvCache(self._pool, block_size=runner.block_size, prefix_cache=options.prefix_cache)
        self._scheduler = Scheduler(
            self._kv_cache, max_batch_size=options.max_batch_size, max_step_tokens=options.max_step_tokens
        )

    @property
    def has_work(self) -> bool:
        return bool(self._sequences)

    def add(self, request: GenerationRequest, arrived: float) -> None:
        """Queue a checked request; ``arrived`` is in the clock's seconds."""
        sequence = Sequence(sequence_id=next(self._ids), request=request, arrived=arrived)
        self._sequences[request.request_id] = sequence
        self._scheduler.add(sequence)

    def abort(self, request_id: str) -> bool:
        """Drop a request; False when it is not there (any more)."""
        sequence = self._sequences.get(request_id)
        if sequence is not None:
            self._end(sequence)
        return sequence is not None

    def step(self) -> StepResult:
        """Run the scheduled work once. Raises ``LoopBroken`` when steps keep failing."""
        schedule = self._scheduler.schedule()
        for preempted in self._scheduler.preempted:
            self._runner.forget(preempted.sequence_id)
        began = self._clock()
        for sequence in schedule:
            sequence.work_began_at = began if sequence.work_began_at is None else sequence.work_began_at
        sampled = self._run(flatten(schedule, self._runner.block_size))
        return self._fail(schedule) if sampled is None else self._take(schedule, sampled)

    def stats(self) -> EngineStats:
        return EngineStats(
            num_running=len(self._scheduler.running),
            num_waiting=len(self._scheduler.waiting),
            num_preemptions_total=self._scheduler.num_preemptions,
            num_free_blocks=self._pool.num_free,
            num_blocks=self._pool.num_blocks,
            prefix_query_tokens_total=self._kv_cache.num_query_tokens,
            prefix_hit_tokens_total=self._kv_cache.num_hit_tokens,
        )

    def check(self) -> None:
        """Compare the books of requests, scheduler and block pool. Raises ``PoolCorrupted``."""
        known = sorted(sequence.sequence_id for sequence in self._sequences.values())
        queued = [sequence.sequence_id for sequence in [*self._scheduler.running, *self._scheduler.waiting]]
        if known != queued:
            raise PoolCorrupted(f"sequences {known} are live, {queued} are scheduled")
        self._pool.check(sequence.block_ids for sequence in self._sequences.values())

    def _run(self, batch: StepBatch) -> list[Sampled] | None:
        """None when the step failed."""
        try:
            sampled = self._runner.run(batch)
            if len(sampled) != len(batch.samples):
                raise RuntimeError(f"the runner gave {len(sampled)} results for {len(batch.samples)} samples")
        except Exception as error:
            self._num_failed_steps += 1
            log.exception("a step of %d sequences failed", len(batch.query_ends))
            if self._num_failed_steps >= MAX_FAILED_STEPS:
                raise LoopBroken(f"{MAX_FAILED_STEPS} steps in a row failed, the last with: {error!r}") from error
            return None
        self._num_failed_steps = 0
        return sampled

    def _take(self, schedule: Schedule, sampled: list[Sampled]) -> StepResult:
        now, batch_size, results = self._clock(), len(schedule), iter(sampled)
        step = StepResult()
        for sequence, num_tokens in schedule.items():
            sequence.num_computed += num_tokens
            if sequence.num_computed < len(sequence.token_ids):
                self._kv_cache.publish(sequence)
                continue
            result = next(results)
            if result.failure is not None:
                self._pool.distrust(sequence.block_ids)  # the keys and values may be as broken as the logits
                step.events.append(self._event(sequence, failure=result.failure))
                self._end(sequence)
                continue
            self._kv_cache.publish(sequence)
            step.events.append(self._accept(sequence, result.token_id, now, batch_size))
        return step

    def _accept(self, sequence: Sequence, token_id: int, now: float, batch_size: int) -> SequenceEvent:
        """Add a drawn token to its sequence."""
        began = now if sequence.work_began_at is None else sequence.work_began_at
        waited_us = max(0, round((began - sequence.last_token_at) * 1e6))
        timing = TokenTiming(waited_us, batch_size, (now - began) * 1e3)
        sequence.append(token_id)
        sequence.last_token_at, sequence.work_began_at = now, None
        event = self._event(sequence, token_id=token_id, timing=timing)
        if event.finish_reason is not None:
            self._end(sequence)
        return event

    def _event(
        self,
        sequence: Sequence,
        *,
        token_id: int | None = None,
        timing: TokenTiming | None = None,
        failure: str | None = None,
    ) -> SequenceEvent:
        request, info = sequence.request, self._info
        return SequenceEvent(
            request_id=request.request_id,
            index=sequence.index,
            token_ids=[] if token_id is None else [token_id],
            timings=[] if timing is None else [timing],
            finish_reason=None if failure else sequence.finish_reason(info.eos_token_ids, info.max_context),
            num_prompt_tokens=len(request.prompt_token_ids),
            num_cached_tokens=sequence.num_cached_tokens or 0,
            failure=failure,
        )

    def _fail(self, schedule: Schedule) -> StepResult:
        for sequence in schedule:
            self._end(sequence)
        return StepResult(failed=[sequence.request.request_id for sequence in schedule])

    def _end(self, sequence: Sequence) -> None:
        del self._sequences[sequence.request.request_id]
        self._scheduler.remove(sequence)
        self._runner.forget(sequence.sequence_id)
