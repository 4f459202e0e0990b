"""The engine's loop: schedule, run, take the tokens. Everything a request meets between arrival and its last token."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

from mindserve_engine.interface import EngineError
from mindserve_engine.native.batch import Runner
from mindserve_engine.native.block_pool import BlockPool, PoolCorrupted
from mindserve_engine.native.execution import Execution, Results
from mindserve_engine.native.kv_cache import KvCache
from mindserve_engine.native.pacing import Pacer
from mindserve_engine.native.scheduler import Schedule, Scheduler
from mindserve_engine.native.sequence import Sequence
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import EngineInfo, EngineStats, GenerationRequest, SequenceEvent, TokenTiming


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
        self._execution = Execution(runner)
        self._pool = BlockPool(runner.num_blocks)
        self._kv_cache = KvCache(self._pool, block_size=runner.block_size, prefix_cache=options.prefix_cache)
        self._pacer = Pacer(options)
        self._scheduler = Scheduler(
            self._kv_cache,
            self._pacer,
            max_batch_size=options.max_batch_size,
            max_step_tokens=options.max_step_tokens,
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

    def step(self) -> list[SequenceEvent]:
        """Run the scheduled work once. Raises ``LoopBroken`` when steps keep failing."""
        schedule = self._scheduler.schedule()
        for preempted in self._scheduler.preempted:
            self._runner.forget(preempted.sequence_id)
        began = self._clock()
        for sequence in schedule:
            sequence.work_began_at = began if sequence.work_began_at is None else sequence.work_began_at
        results = self._execution.run(schedule)
        ended = self._clock()
        self._pacer.note(sum(num_tokens for num_tokens in schedule.values() if num_tokens > 1), ended - began)
        return self._take(schedule, results, ended)

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

    def _take(self, schedule: Schedule, results: Results, now: float) -> list[SequenceEvent]:
        batch_size = len(schedule)
        events = []
        for sequence, num_tokens in schedule.items():
            result = results.get(sequence)
            if result is not None and result.failure is not None:
                events.append(self._fail(sequence, result.failure))
                continue
            sequence.num_computed += num_tokens
            self._kv_cache.publish(sequence)
            if result is not None:
                events.append(self._accept(sequence, result.token_id, now, batch_size))
        return events

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

    def _fail(self, sequence: Sequence, failure: str) -> SequenceEvent:
        self._pool.distrust(sequence.block_ids)  # the keys and values may be as broken as what came of them
        event = self._event(sequence, failure=failure)
        self._end(sequence)
        return event

    def _end(self, sequence: Sequence) -> None:
        del self._sequences[sequence.request.request_id]
        self._scheduler.remove(sequence)
        self._runner.forget(sequence.sequence_id)
