"""Sequences that cannot start before their grammar is compiled: in a thread, so that the steps of others go on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from llguidance import LLMatcher

from mindserve_engine.grammar import GrammarCompiler, GrammarInvalid
from mindserve_engine.native.sequence import Sequence
from mindserve_engine.types import Vocabulary


class Compiling:
    """Grammars are compiled one after the other; those that are kept from before are there at once."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """``wake`` is called, by any thread, when there is something to ``take``."""
        self._wake = wake
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="compile-grammars")
        self._compiler: GrammarCompiler | None = None
        self._waiting: dict[Sequence, Future[LLMatcher]] = {}

    @property
    def sequences(self) -> list[Sequence]:
        """Those that wait."""
        return list(self._waiting)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._waiting

    @property
    def has_news(self) -> bool:
        """Whether ``take`` would give something."""
        return any(future.done() for future in self._waiting.values())

    def learn(self, vocabulary: Vocabulary) -> None:
        """Before the first ``add``."""
        self._compiler = GrammarCompiler(vocabulary)
        self._thread.submit(self._compiler.prepare)

    def add(self, sequence: Sequence) -> bool:
        """Give the sequence its grammar, now (then True) or in a later ``take``."""
        assert self._compiler is not None, "a grammar came before the vocabulary"
        grammar = sequence.request.grammar
        assert grammar is not None
        sequence.grammar = self._compiler.kept(grammar)
        if sequence.grammar is not None:
            return True
        future = self._waiting[sequence] = self._thread.submit(self._compiler.compile, grammar)
        future.add_done_callback(lambda _: self._wake())
        return False

    def drop(self, sequence: Sequence) -> None:
        """It has been given up. What is being compiled is kept for others."""
        self._waiting.pop(sequence).cancel()

    def take(self) -> tuple[list[Sequence], dict[Sequence, str]]:
        """Those that have their grammar since the last time; and those that cannot have it, with the reason."""
        ready: list[Sequence] = []
        failed: dict[Sequence, str] = {}
        for sequence, future in list(self._waiting.items()):
            if not future.done():
                continue
            del self._waiting[sequence]
            try:
                sequence.grammar = future.result()
            except GrammarInvalid as error:
                failed[sequence] = f"its grammar cannot be followed: {error}"
            else:
                ready.append(sequence)
        return ready, failed

    def close(self) -> None:
        """Nothing more is begun; what is being compiled comes to its end."""
        self._thread.shutdown(wait=False, cancel_futures=True)
