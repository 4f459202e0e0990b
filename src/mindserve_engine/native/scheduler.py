"""Decides each step's work as ``{sequence: number of tokens}`` under a token budget.

Order of service is order of arrival: first what runs, then what waits. The budget is that of the options, or less when
the pacer asks for shorter steps. A prompt longer than what is left of it is cut into chunks, and nobody starts without
a part of the budget; so only the youngest running sequence can be part-way through its prompt, all others decode, and
each of them gets its token in every step. When one finds no free block, the youngest running sequence gives its blocks
back and waits to be recomputed; so the oldest always goes on, and since every admitted sequence fits the pool alone,
all come to their end.
"""

from __future__ import annotations

from collections import deque

from mindserve_engine.native.kv_cache import KvCache
from mindserve_engine.native.pacing import Pacer
from mindserve_engine.native.sequence import Sequence

Schedule = dict[Sequence, int]
"""Tokens to run for each sequence of the step, in batch order."""


class Scheduler:
    """Owns the waiting and running sequences; whoever leaves both has given its blocks back."""

    def __init__(self, kv_cache: KvCache, pacer: Pacer, *, max_batch_size: int, max_step_tokens: int) -> None:
        self.waiting: deque[Sequence] = deque()
        """In order of arrival; preempted ones are the oldest."""
        self.running: list[Sequence] = []
        """In order of arrival."""
        self.preempted: list[Sequence] = []
        """Those that the last ``schedule`` sent back to wait."""
        self.num_preemptions = 0
        self._kv_cache = kv_cache
        self._pacer = pacer
        self._max_step_tokens = max_step_tokens
        self._max_batch_size = max_batch_size

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence; it must fit the pool when it is alone."""
        self.waiting.append(sequence)

    def schedule(self) -> Schedule:
        """The work of the next step; empty only when nothing runs or waits."""
        self._make_room()
        work: Schedule = {}
        budget = self._budget()
        for sequence in self.running:
            work[sequence] = min(sequence.num_remaining, budget)
            budget -= work[sequence]
        self._admit(work, budget)
        return work

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out that has ended, waiting or running."""
        if sequence.block_ids:
            self.running.remove(sequence)
            self._kv_cache.close(sequence)
        else:
            self.waiting.remove(sequence)

    def _budget(self) -> int:
        num_decodes = sum(sequence.num_remaining == 1 for sequence in self.running)
        return min(self._max_step_tokens, num_decodes + self._pacer.limit(num_decodes))

    def _make_room(self) -> None:
        """A slot for the newest token of every decoding sequence, at the cost of the youngest where there is none."""
        self.preempted = []
        for sequence in list(self.running):
            while sequence.block_ids and not self._kv_cache.grow(sequence):
                self._preempt(self.running.pop())

    def _preempt(self, sequence: Sequence) -> None:
        self._kv_cache.close(sequence)
        self.waiting.appendleft(sequence)
        self.preempted.append(sequence)
        self.num_preemptions += 1

    def _admit(self, work: Schedule, budget: int) -> None:
        """Start waiting sequences while there is budget, a place in the batch, and room for all their tokens."""
        while self.waiting and budget and len(self.running) < self._max_batch_size:
            # blocks kept back for what already runs: without them a newcomer is preempted again at once
            num_spare = 1 + self._kv_cache.pool.num_blocks // 100 if self.running else 0
            sequence = self.waiting[0]
            if not self._kv_cache.open(sequence, num_spare=num_spare):
                break
            self.waiting.popleft()
            self.running.append(sequence)
            work[sequence] = min(sequence.num_remaining, budget)
            budget -= work[sequence]
