"""The engine's loop: schedule, run, take the tokens. Everything a request meets between arrival and its last token."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Final

from mindserve_engine.beam import BeamSearch, Continuation
from mindserve_engine.interface import EngineError
from mindserve_engine.native.batch import Runner, Sampled
from mindserve_engine.native.block_pool import BlockPool, PoolCorrupted
from mindserve_engine.native.compiling import Compiling
from mindserve_engine.native.execution import Execution, Results
from mindserve_engine.native.kv_cache import KvCache
from mindserve_engine.native.media.encoding import Encoding
from mindserve_engine.native.media.prompt import PromptMedia
from mindserve_engine.native.pacing import Pacer
from mindserve_engine.native.scheduler import Schedule, Scheduler
from mindserve_engine.native.sequence import Sequence
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import EngineInfo, EngineStats, GenerationRequest, SequenceEvent, TokenTiming, Vocabulary

NOT_ENCODED: Final = "its media cannot be encoded"
"""Told to the client; the log has the details."""


class EngineLoop:
    """Runs requests on one runner. One thread uses it."""

    def __init__(
        self,
        runner: Runner,
        info: EngineInfo,
        options: EngineOptions,
        clock: Callable[[], float] = time.monotonic,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """``wake`` is called, by any thread, when a loop that must wait need not wait any more."""
        capacity = runner.num_blocks * runner.block_size
        if info.max_context > capacity:  # a sequence that outgrows the pool would wait for ever
            raise EngineError(f"the KV cache holds {capacity} tokens, fewer than the context of {info.max_context}")
        self._runner = runner
        self._info = info
        self._clock = clock
        self._requests: dict[str, int] = {}
        """Number of each live request, by its id."""
        self._request_numbers = itertools.count()
        self._sequence_ids = itertools.count()
        self._execution = Execution(runner)
        self._compiling = Compiling(wake)
        self._pool = BlockPool(runner.num_blocks)
        self._kv_cache = KvCache(self._pool, block_size=runner.block_size, prefix_cache=options.prefix_cache)
        self._pacer = Pacer(options)
        self._encoding = Encoding(runner.encoder, limit_bytes=options.media_cache_mb * 2**20, clock=clock)
        self._scheduler = Scheduler(
            self._kv_cache,
            self._pacer,
            max_batch_size=options.max_batch_size,
            max_step_tokens=options.max_step_tokens,
            encoded=self._encoding.cache,
        )

    @property
    def has_work(self) -> bool:
        return bool(self._requests)

    @property
    def must_wait(self) -> bool:
        """Whether a step would do nothing: no request is there, or all of them wait for their grammars."""
        return not (self._scheduler.running or self._scheduler.waiting or self._compiling.has_news)

    def add(self, request: GenerationRequest, arrived: float) -> None:
        """Queue a checked request; ``arrived`` is in the clock's seconds."""
        number = self._requests[request.request_id] = next(self._request_numbers)
        sequence = Sequence(
            sequence_id=next(self._sequence_ids),
            request_number=number,
            request=request,
            arrived=arrived,
            cache_key=b"" if request.adapter is None else request.adapter.encode(),
            media=PromptMedia.of(request, self._encoding.rule),
            search=self._search(request),
        )
        if request.grammar is None or self._compiling.add(sequence):
            self._scheduler.add(sequence)

    def learn(self, vocabulary: Vocabulary) -> None:
        """Before the first request with a grammar."""
        self._compiling.learn(vocabulary)

    def close(self) -> None:
        """No step is made any more."""
        self._compiling.close()

    def abort(self, request_id: str, index: int | None = None) -> bool:
        """Drop a request, or one of its sequences; False when it is not there (any more)."""
        number = self._requests.get(request_id)
        if number is None:
            return False
        found = self._of_request(number)
        if index is not None:
            found = _to_end(found, index)
        for sequence in found:
            self._end(sequence)
        return bool(found)

    def step(self) -> list[SequenceEvent]:
        """Run the scheduled work once. Raises ``LoopBroken`` when steps keep failing."""
        events = self._start_compiled() + self._encode()
        schedule = self._scheduler.schedule()
        for preempted in self._scheduler.preempted:
            self._runner.forget(preempted.sequence_id)
        events += [event for search in self._scheduler.outgrown for event in self._give_up(search)]
        if not schedule:
            return events
        began = self._clock()
        for sequence in schedule:
            sequence.work_began_at = began if sequence.work_began_at is None else sequence.work_began_at
        copies = self._kv_cache.take_copies()
        if copies:
            self._runner.copy_blocks(copies)
        results = self._execution.run(schedule)
        ended = self._clock()
        self._pacer.note(sum(num_tokens for num_tokens in schedule.values() if num_tokens > 1), ended - began)
        return events + self._take(schedule, results, ended)

    def stats(self) -> EngineStats:
        running = {sequence.request_number for sequence in self._scheduler.running}
        return EngineStats(
            num_running=len(running),
            num_waiting=len(self._requests) - len(running),
            num_preemptions_total=self._scheduler.num_preemptions,
            num_free_blocks=self._pool.num_free,
            num_blocks=self._pool.num_blocks,
            prefix_query_tokens_total=self._kv_cache.num_query_tokens,
            prefix_hit_tokens_total=self._kv_cache.num_hit_tokens,
        )

    def check(self) -> None:
        """Compare the books of requests, scheduler and block pool. Raises ``PoolCorrupted``."""
        waiting = [sequence.order for sequence in self._scheduler.waiting]
        live = [*self._scheduler.running, *self._scheduler.waiting, *self._compiling.sequences]
        scheduled = {sequence.request_number for sequence in live}
        if scheduled != set(self._requests.values()) or len({one.sequence_id for one in live}) != len(live):
            raise PoolCorrupted(f"requests {sorted(self._requests.values())} are live, {sorted(scheduled)} scheduled")
        if waiting != sorted(waiting):
            raise PoolCorrupted(f"sequences wait out of order: {waiting}")
        self._pool.check(sequence.block_ids for sequence in live)

    def _start_compiled(self) -> list[SequenceEvent]:
        """Queue the sequences that have got their grammars, and fail those that cannot have them."""
        ready, failed = self._compiling.take()
        for sequence in ready:
            self._scheduler.add(sequence)
        for sequence in failed:
            del self._requests[sequence.request.request_id]
        return [event for sequence, reason in failed.items() for event in _failures(sequence.request, reason)]

    def _of_request(self, number: int) -> list[Sequence]:
        compiling = [one for one in self._compiling.sequences if one.request_number == number]
        return compiling or self._scheduler.of_request(number)

    def _search(self, request: GenerationRequest) -> BeamSearch[Sequence] | None:
        if not request.beam_width:
            return None
        room = self._info.max_context - len(request.prompt_token_ids)
        max_tokens = min(request.max_tokens, room)
        return BeamSearch(request, eos_token_ids=self._info.eos_token_ids, max_tokens=max_tokens)

    def _encode(self) -> list[SequenceEvent]:
        """Work on media for as long as a step has room for it."""
        running = self._scheduler.running
        num_decodes = sum(sequence.num_remaining == 1 for sequence in running)
        failed = self._encoding.work(running, self._pacer.encoding_s(num_decodes))
        return [
            event
            for sequence in failed
            if sequence.request.request_id in self._requests  # not ended with another of its beams
            for event in self._fail(sequence, NOT_ENCODED)
        ]

    def _take(self, schedule: Schedule, results: Results, now: float) -> list[SequenceEvent]:
        events: list[SequenceEvent] = []
        beams: dict[BeamSearch[Sequence], dict[Sequence, Sampled]] = {}
        for sequence, num_tokens in schedule.items():
            if sequence.request.request_id not in self._requests:  # ended with another of its beams
                continue
            sampled = results.get(sequence, [])
            failure = next((one.failure for one in sampled if one.failure is not None), None)
            if failure is not None:
                events += self._fail(sequence, failure)
                continue
            sequence.num_computed += num_tokens
            self._kv_cache.publish(sequence)
            if sequence.search is not None and sampled:
                beams.setdefault(sequence.search, {})[sequence] = sampled[0]
            elif sampled:
                events += self._accept(sequence, sampled, now, len(schedule))
        for search, candidates in beams.items():
            if search.request.request_id in self._requests:
                events += self._advance(search, candidates, now, len(schedule))
        return events

    def _accept(self, sequence: Sequence, sampled: list[Sampled], now: float, batch_size: int) -> list[SequenceEvent]:
        """Add a drawn token to its sequence; several of them make it several sequences."""
        timing = _timing(sequence, now, batch_size)
        sequence.last_token_at, sequence.work_began_at = now, None
        sequences = [sequence]
        for index in range(1, len(sampled)):
            child = sequence.fork(next(self._sequence_ids), index=index)
            self._scheduler.fork(sequences[-1], child)
            sequences.append(child)
        events = []
        for one, draw in zip(sequences, sampled, strict=True):
            event = self._append(one, draw, timing)
            if one.index not in sequence.given_up:
                events.append(event)
            elif event.finish_reason is None:
                self._end(one)
        return events

    def _append(self, sequence: Sequence, sampled: Sampled, timing: TokenTiming) -> SequenceEvent:
        sequence.append(sampled.token_id)
        finish_reason = sequence.finish_reason(self._info.eos_token_ids, self._info.max_context)
        if finish_reason is not None:
            self._end(sequence)
        return SequenceEvent(
            request_id=sequence.request.request_id,
            index=sequence.index,
            token_ids=[sampled.token_id],
            timings=[timing],
            finish_reason=finish_reason,
            num_prompt_tokens=len(sequence.request.prompt_token_ids),
            num_cached_tokens=sequence.num_cached_tokens or 0,
            logprobs=[] if sampled.logprobs is None else [sampled.logprobs],
        )

    def _advance(
        self, search: BeamSearch[Sequence], candidates: dict[Sequence, Sampled], now: float, batch_size: int
    ) -> list[SequenceEvent]:
        """Make the beams of the next step out of those of this one; events come when the search is over."""
        timing = _timing(next(iter(candidates)), now, batch_size)
        search.timings.append(timing)
        heirs: dict[Sequence, list[Continuation[Sequence]]] = {beam: [] for beam in candidates}
        for continuation in search.advance(candidates):
            heirs[continuation.parent].append(continuation)
        if not any(heirs.values()):
            num_cached = next(iter(candidates)).num_cached_tokens or 0
            for beam in candidates:
                self._end(beam)
            return search.events(num_cached_tokens=num_cached)
        for beam, continuations in heirs.items():
            beam.last_token_at, beam.work_began_at = now, None
            forks = [beam.fork(next(self._sequence_ids), index=0) for _ in continuations[1:]]
            for fork in forks:
                self._scheduler.fork(beam, fork)
            for heir, continuation in zip([beam, *forks], continuations, strict=False):
                heir.continue_beam(continuation.token_id, continuation.score, continuation.logprobs)
        for beam, continuations in heirs.items():
            if not continuations:
                self._end(beam)
        return []

    def _give_up(self, search: BeamSearch[Sequence]) -> list[SequenceEvent]:
        del self._requests[search.request.request_id]
        capacity = self._runner.num_blocks * self._runner.block_size
        return _failures(search.request, f"its {search.width} beams outgrew the KV memory of {capacity} tokens")

    def _fail(self, sequence: Sequence, failure: str) -> list[SequenceEvent]:
        """A sequence fails alone, a beam with its whole search."""
        self._pool.distrust(sequence.block_ids)  # the keys and values may be as broken as what came of them
        self._encoding.distrust(sequence)
        if sequence.search is None and sequence.output_token_ids:
            self._end(sequence)
            return [_failure(sequence.request, sequence.index, failure)]
        self.abort(sequence.request.request_id)
        return _failures(sequence.request, failure)

    def _end(self, sequence: Sequence) -> None:
        if sequence in self._compiling:
            self._compiling.drop(sequence)
        else:
            self._scheduler.remove(sequence)
            self._runner.forget(sequence.sequence_id)
        if sequence.media is not None:
            self._encoding.settle(itertools.chain(self._scheduler.running, self._scheduler.waiting))
        if not self._scheduler.of_request(sequence.request_number):
            del self._requests[sequence.request.request_id]


def _to_end(sequences: list[Sequence], index: int) -> list[Sequence]:
    """Those that end when one sequence of their request is given up. Before the first token there is one for all, and
    beams are none of those that are given out: then the others go on."""
    first = sequences[0]
    if first.search is not None:
        return []
    if first.output_token_ids:
        return [one for one in sequences if one.index == index]
    first.given_up.add(index)
    return sequences if len(first.given_up) == first.request.num_sequences else []


def _timing(sequence: Sequence, now: float, batch_size: int) -> TokenTiming:
    began = now if sequence.work_began_at is None else sequence.work_began_at
    waited_us = max(0, round((began - sequence.last_token_at) * 1e6))
    return TokenTiming(waited_us, batch_size, (now - began) * 1e3)


def _failures(request: GenerationRequest, failure: str) -> list[SequenceEvent]:
    return [_failure(request, index, failure) for index in range(request.num_sequences)]


def _failure(request: GenerationRequest, index: int, failure: str) -> SequenceEvent:
    return SequenceEvent(request.request_id, index, [], [], failure=failure)
