"""One sequence on its way through the loop: its tokens, its blocks, how far its keys and values are computed."""

from __future__ import annotations

import copy
from collections.abc import Container
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mindserve_engine.native.media.prompt import PromptMedia
from mindserve_engine.types import FinishReason, GenerationRequest, TokenLogprobs

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from mindserve_engine.beam import BeamSearch


@dataclass(slots=True, eq=False)
class Sequence:
    """Mutable state of one sequence. Created waiting; the scheduler moves it between waiting and running."""

    sequence_id: int
    """Unique in the engine process."""
    request_number: int
    """Ascending in order of arrival."""
    request: GenerationRequest
    arrived: float
    """Monotonic seconds, taken when the request was admitted."""
    index: int = 0
    """Of the request's sequences."""
    given_up: set[int] = field(default_factory=set)
    """Sequences of the request that nobody waits for any more, though they are yet to be forked off."""
    cache_key: bytes = b""
    """What shapes all keys and values beside the tokens (the adapter): part of every block hash."""
    media: PromptMedia | None = None
    """Of a prompt that is not text alone."""
    token_ids: list[int] = field(default_factory=list)
    """Prompt and output."""
    output_token_ids: list[int] = field(default_factory=list)
    block_ids: list[int] = field(default_factory=list)
    """The KV blocks of the sequence, in order of position."""
    block_hashes: list[bytes] = field(default_factory=list)
    """Hash chain of the full blocks of ``token_ids``, as far as it was needed."""
    num_computed: int = 0
    """Tokens whose keys and values are in the cache."""
    num_published: int = 0
    """Blocks, from the first, that the prefix cache has been told about."""
    num_cached_tokens: int | None = None
    """Prompt tokens taken from the prefix cache when it first ran; ``None`` before that."""
    grammar: LLMatcher | None = None
    """What the request's grammar became, at its start."""
    search: BeamSearch[Sequence] | None = None
    """Beams of one request share it and live in lockstep."""
    beam_score: float = 0.0
    """Sum of the tokens' log-probabilities after penalties, of a beam."""
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    """Of a beam's tokens, where the request wants them: a beam is told of only at its end."""
    last_token_at: float = 0.0
    """Monotonic seconds of the last token; the arrival before the first one."""
    work_began_at: float | None = None
    """Start of the first step that worked towards the next token."""

    stop_token_ids: frozenset[int] = frozenset()
    """The request's; a set because a request may bring very many."""

    def __post_init__(self) -> None:
        self.stop_token_ids = frozenset(self.request.stop_token_ids)
        self.token_ids = list(self.request.prompt_token_ids)
        self.last_token_at = self.arrived

    @property
    def num_remaining(self) -> int:
        """Tokens still to be run through the model before the next one can be drawn; at least 1."""
        return len(self.token_ids) - self.num_computed

    def num_ready(self, encoded: Container[bytes]) -> int:
        """How many of the remaining tokens can be run: those before the first item that is not ``encoded``."""
        missing = None if self.media is None else self.media.missing(self.num_computed, encoded)
        return self.num_remaining if missing is None else max(0, missing.start - self.num_computed)

    @property
    def num_draws(self) -> int:
        """Tokens to be drawn after the sequence's last one: as many as there will be sequences when a prompt that
        several of them share has been computed."""
        return 1 if self.output_token_ids or self.search is not None else self.request.num_sequences

    @property
    def order(self) -> tuple[int, int]:
        """Who is served first: order of arrival, and within a request the sequence's age."""
        return self.request_number, self.sequence_id

    def append(self, token_id: int) -> None:
        """Add a generated token."""
        self.token_ids.append(token_id)
        self.output_token_ids.append(token_id)

    def continue_beam(self, token_id: int, score: float, logprobs: TokenLogprobs | None) -> None:
        """Add a beam's next token; ``score`` is the beam's with it."""
        self.append(token_id)
        self.beam_score = score
        if logprobs is not None:
            self.logprobs.append(logprobs)

    def fork(self, sequence_id: int, *, index: int) -> Sequence:
        """A sequence with the same past and, as yet, no blocks."""
        child = copy.copy(self)
        child.sequence_id, child.index = sequence_id, index
        child.token_ids, child.output_token_ids = list(self.token_ids), list(self.output_token_ids)
        child.block_ids, child.block_hashes, child.logprobs = [], list(self.block_hashes), list(self.logprobs)
        return child

    def finish_reason(self, eos_token_ids: tuple[int, ...], max_context: int) -> FinishReason | None:
        """Why the sequence ends with its last token, if it does."""
        request, token_id = self.request, self.token_ids[-1]
        if token_id in eos_token_ids and not request.ignore_eos:
            return FinishReason.EOS
        if token_id in self.stop_token_ids:
            return FinishReason.STOP_TOKEN
        if len(self.output_token_ids) >= request.max_tokens or len(self.token_ids) >= max_context:
            return FinishReason.LENGTH
        return None

    def restarted(self) -> Sequence:
        """The sequence as it was before it first ran, the first of its search again."""
        assert self.search is not None
        self.search.restart()
        return Sequence(
            sequence_id=self.sequence_id,
            request_number=self.request_number,
            request=self.request,
            arrived=self.arrived,
            cache_key=self.cache_key,
            grammar=self.grammar,
            media=self.media,
            search=self.search,
            num_cached_tokens=self.num_cached_tokens,
        )
