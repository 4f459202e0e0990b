"""Decides each step's work as ``{sequence: number of tokens}`` under a token budget.

Order of service is order of arrival: first what runs, then what waits. The budget is that of the options, or less when
the pacer asks for shorter steps. A prompt longer than what is left of it is cut into chunks, and nobody starts without
a part of the budget; so of prompts of text only the youngest running one can be computed in part. One with media may
also wait for them to be encoded, with no tokens in the step, while younger ones go on. Those that decode get their
token in every step, before any prompt gets a part. When one finds no free block, the youngest running sequence gives
its blocks back and waits to be recomputed; so the oldest always goes on, and since every admitted sequence fits the
pool alone, all come to their end.

Sequences forked from a running one run beside it at once, or wait at their place in the order where the batch is full.
The beams of a search run all or not at all: they come to their places together, and when one has to give its blocks
back the whole search begins anew, later. A search that outgrows the pool even when it is alone cannot go on.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Container

from mindserve_engine.beam import BeamSearch
from mindserve_engine.native.kv_cache import KvCache
from mindserve_engine.native.pacing import Pacer
from mindserve_engine.native.sequence import Sequence

Schedule = dict[Sequence, int]
"""Tokens to run for each sequence of the step, in batch order."""


class Scheduler:
    """Owns the waiting and running sequences; whoever leaves both has given its blocks back."""

    def __init__(
        self,
        kv_cache: KvCache,
        pacer: Pacer,
        *,
        max_batch_size: int,
        max_step_tokens: int,
        encoded: Container[bytes] = frozenset(),
    ) -> None:
        """``encoded`` are the digests of media whose embeddings are there."""
        self.waiting: deque[Sequence] = deque()
        """In order of arrival; preempted ones are the oldest."""
        self.running: list[Sequence] = []
        """In the order they were started; those of one request stand together."""
        self.preempted: list[Sequence] = []
        """Those that lost their blocks in the last ``schedule``; beams do not come back."""
        self.outgrown: list[BeamSearch[Sequence]] = []
        """Searches that the last ``schedule`` gave up for want of blocks. Their sequences are gone."""
        self.num_preemptions = 0
        self._kv_cache = kv_cache
        self._pacer = pacer
        self._encoded = encoded
        self._max_step_tokens = max_step_tokens
        self._max_batch_size = min(max_batch_size, max_step_tokens)
        """Everybody who runs gets a token in every step."""

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence, ahead of those that came after it; it must fit the pool when it is alone."""
        self._queue(sequence)

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Let a running sequence's ``child`` run beside it on the same blocks, or wait where there is no place."""
        if child.search is None and self._num_places() >= self._max_batch_size:
            self._queue(child)
        else:
            self._kv_cache.fork(parent, child)
            self.running.insert(self.running.index(parent) + 1, child)

    def schedule(self) -> Schedule:
        """The work of the next step; empty only when nothing runs or waits, what ran was given up, or all that run wait
        for media to be encoded."""
        self._make_room()
        work: Schedule = {}
        num_decodes = sum(sequence.num_remaining == 1 for sequence in self.running)
        num_prompts = len(self.waiting) + len(self.running) - num_decodes
        budget = min(self._max_step_tokens - num_decodes, self._pacer.limit(num_decodes, num_prompts))
        for sequence in self.running:
            if sequence.num_remaining == 1:
                work[sequence] = sequence.num_ready(self._encoded)
            else:
                work[sequence] = min(sequence.num_ready(self._encoded), budget)
                budget -= work[sequence]
        self._admit(work, budget)
        return {sequence: num_tokens for sequence, num_tokens in work.items() if num_tokens}

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out that has ended, waiting or running."""
        if sequence.block_ids:
            self.running.remove(sequence)
            self._kv_cache.close(sequence)
        else:
            self.waiting.remove(sequence)

    def of_request(self, request_number: int) -> list[Sequence]:
        """Its sequences that have not ended, running ones first."""
        return [one for one in itertools.chain(self.running, self.waiting) if one.request_number == request_number]

    def _make_room(self) -> None:
        """A slot for the newest token of every decoding sequence, at the cost of the youngest where there is none."""
        self.preempted, self.outgrown = [], []
        for sequence in list(self.running):
            while sequence.block_ids and not self._kv_cache.grow(sequence):
                self._preempt()

    def _preempt(self) -> None:
        """Take the blocks of the last running sequence, or of all beams of its search."""
        last = self.running[-1]
        search = last.search
        victims = [last] if search is None else [one for one in self.running if one.search is search]
        del self.running[-len(victims) :]
        for victim in victims:
            self._kv_cache.close(victim)
        self.preempted += victims
        self.num_preemptions += 1
        if search is None:
            self._queue(last)
        elif self.running:
            self._queue(victims[0].restarted())
        else:
            self.outgrown.append(search)

    def _queue(self, sequence: Sequence) -> None:
        """Let it wait, ahead of all that came after it."""
        num_later = sum(1 for _ in itertools.takewhile(lambda one: one.order > sequence.order, reversed(self.waiting)))
        self.waiting.insert(len(self.waiting) - num_later, sequence)

    def _num_places(self) -> int:
        """Places of the batch that are taken or promised to the beams of a search that has begun."""
        searches = {sequence.search for sequence in self.running} - {None}
        num_alone = sum(sequence.search is None for sequence in self.running)
        return num_alone + sum(search.width for search in searches if search is not None)

    def _admit(self, work: Schedule, budget: int) -> None:
        """Start waiting sequences while there is budget, a place in the batch, and room for all their tokens."""
        num_places = self._max_batch_size - self._num_places()
        while self.waiting and budget:
            sequence = self.waiting[0]
            width = 1 if sequence.search is None else sequence.search.width
            # blocks kept back for what already runs: without them a newcomer is preempted again at once
            num_spare = width + self._kv_cache.pool.num_blocks // 100 if self.running else 0
            if width > num_places or not self._kv_cache.open(sequence, num_spare=num_spare):
                break
            self.waiting.popleft()
            self.running.append(sequence)
            num_places -= width
            work[sequence] = min(sequence.num_ready(self._encoded), budget)
            budget -= work[sequence]
