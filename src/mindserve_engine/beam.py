"""Beam search over the step results of one request: which beams live on, what is finished, when it is over.

The search is transformers' with its defaults ``length_penalty=1.0`` and ``early_stopping=False``: scores are sums of
log-probabilities, finished hypotheses are compared by their score divided by their number of tokens, and the search is
over when as many hypotheses as the width are finished and the best living beam, divided by its present length, is no
better than the worst of them. No tensors and no blocks here: the engine carries the decisions out.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from mindserve_engine.types import FinishReason, GenerationRequest, SequenceEvent, TokenLogprobs, TokenTiming

_FEWEST_FACTOR: Final = 2
"""Candidates per beam, as transformers keeps them: so many that enough of them do not end."""


class Candidate(NamedTuple):
    """One way to continue a beam."""

    token_id: int
    score: float
    """Its log-probability after penalties."""
    logprob: float
    """The model's own log-probability."""


class Beam(Protocol):
    """A living beam, as far as the search looks at it."""

    @property
    def output_token_ids(self) -> list[int]: ...

    @property
    def logprobs(self) -> list[TokenLogprobs]:
        """As long as ``output_token_ids`` when the request asked for them, else empty."""

    @property
    def beam_score(self) -> float:
        """Sum of log-probabilities after penalties."""


class Row(Protocol):
    """What one step found out about a beam."""

    @property
    def candidates(self) -> Iterable[Candidate]:
        """Its best continuations, best first."""

    @property
    def logprobs(self) -> TokenLogprobs | None:
        """The likeliest tokens, when they were asked for."""


BeamT = TypeVar("BeamT", bound=Beam)


@dataclass(slots=True)
class Hypothesis:
    """A finished sequence of tokens."""

    score: float
    """Per token."""
    token_ids: list[int]
    logprobs: list[TokenLogprobs]
    finish_reason: FinishReason


@dataclass(slots=True, frozen=True)
class Continuation(Generic[BeamT]):
    """A beam of the next step: ``parent`` with one more token."""

    parent: BeamT
    token_id: int
    score: float
    """Sum of log-probabilities."""
    logprobs: TokenLogprobs | None


class BeamSearch(Generic[BeamT]):
    """The state of one request's search."""

    def __init__(self, request: GenerationRequest, *, eos_token_ids: tuple[int, ...], max_tokens: int) -> None:
        self.request = request
        self.width = request.beam_width
        self._eos_token_ids = frozenset(() if request.ignore_eos else eos_token_ids)
        self._max_tokens = max_tokens
        self.num_candidates = max(_FEWEST_FACTOR, 1 + len(self._eos_token_ids)) * self.width
        """Wanted of every beam's row: the best of all of them are among these."""
        self.restart()

    def restart(self) -> None:
        """Forget everything: the search begins anew at the prompt, with the same result."""
        self.timings: list[TokenTiming] = []
        """One per step."""
        self._finished: list[Hypothesis] = []
        """Best first, at most as many as the width."""

    def advance(self, results: Mapping[BeamT, Row]) -> list[Continuation[BeamT]]:
        """Take one step's candidates of all living beams; the beams of the next step, best first.

        None are left when the search is over.
        """
        length = len(next(iter(results)).output_token_ids) + 1
        rows = (_continuations(parent, row) for parent, row in results.items())
        # rows are sorted: of the width squared continuations few more than are wanted are ever made
        best = list(islice(heapq.merge(*rows, key=lambda one: one.score, reverse=True), self.num_candidates))
        at_end = length >= self._max_tokens
        for continuation in best[: self.width]:
            if at_end or continuation.token_id in self._eos_token_ids:
                self._finish(continuation, length)
        living = [] if at_end else [one for one in best if one.token_id not in self._eos_token_ids][: self.width]
        if living and len(self._finished) == self.width and living[0].score / length <= self._finished[-1].score:
            return []
        return living

    def events(self, *, num_cached_tokens: int) -> list[SequenceEvent]:
        """What the request gets when the search is over: its hypotheses, best first."""
        return [
            SequenceEvent(
                request_id=self.request.request_id,
                index=index,
                token_ids=hypothesis.token_ids,
                timings=self.timings[: len(hypothesis.token_ids)],
                finish_reason=hypothesis.finish_reason,
                num_prompt_tokens=len(self.request.prompt_token_ids),
                num_cached_tokens=num_cached_tokens,
                logprobs=hypothesis.logprobs,
                beam_score=hypothesis.score,
            )
            for index, hypothesis in enumerate(self._finished[: self.request.num_sequences])
        ]

    def _finish(self, continuation: Continuation[BeamT], length: int) -> None:
        parent = continuation.parent
        hypothesis = Hypothesis(
            score=continuation.score / length,
            token_ids=[*parent.output_token_ids, continuation.token_id],
            logprobs=parent.logprobs + ([] if continuation.logprobs is None else [continuation.logprobs]),
            finish_reason=FinishReason.EOS if continuation.token_id in self._eos_token_ids else FinishReason.LENGTH,
        )
        self._finished.append(hypothesis)
        self._finished.sort(key=lambda one: -one.score)
        del self._finished[self.width :]


def _continuations(parent: BeamT, row: Row) -> Iterator[Continuation[BeamT]]:
    """Best first."""
    for candidate in row.candidates:
        logprobs = _logprobs(candidate, row.logprobs)
        yield Continuation(parent, candidate.token_id, parent.beam_score + candidate.score, logprobs)


def _logprobs(candidate: Candidate, top: TokenLogprobs | None) -> TokenLogprobs | None:
    return None if top is None else TokenLogprobs(candidate.logprob, top.top_token_ids, top.top_logprobs)
