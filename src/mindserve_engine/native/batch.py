"""One step's work as plain numbers: what the scheduler hands to the runner, and what comes back.

All tokens of a step lie in one flattened batch of T tokens with B sequences; there is no padding. Torch-free on
purpose: the scheduler's side must be testable, and readable, without tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from mindserve_engine.beam import Candidate
from mindserve_engine.media.positions import Positions
from mindserve_engine.native.media.encoding import Encoder
from mindserve_engine.native.media.prompt import Overlay
from mindserve_engine.types import SamplingParams, TokenLogprobs

if TYPE_CHECKING:
    from llguidance import LLMatcher


@dataclass(slots=True)
class SampleRow:
    """A sequence whose last token of this step needs a successor."""

    sequence_id: int
    """Unique in the engine process and never reused: the sampler keeps its token counts under it."""
    row: int
    """Index of the sequence in the batch, 0..B-1."""
    params: SamplingParams
    index: int
    """Index of the sequence within its request; part of the random stream."""
    position: int
    """Output position of the token being drawn, from 0; part of the random stream. A preempted sequence that is
    recomputed goes on at the position where it was."""
    prompt_token_ids: list[int]
    output_token_ids: list[int]
    """What has been generated so far; read it during the call only."""
    num_logprobs: int | None = None
    """Not ``None``: report log-probabilities of the token and of so many likeliest ones."""
    num_candidates: int = 0
    """Above 0: nothing is drawn; so many best continuations are wanted, for beam search."""
    grammar: LLMatcher | None = None
    """What the sequence must follow from its first output on, at its start; copy it. Only tokens that it allows are
    drawn or continue a beam."""


@dataclass(slots=True)
class StepBatch:
    """The flattened batch of one step."""

    token_ids: list[int] = field(default_factory=list)
    """[T] tokens to run through the model, sequence after sequence."""
    positions: list[int] = field(default_factory=list)
    """[T] position of each token in its sequence, from 0."""
    slots: list[int] = field(default_factory=list)
    """[T] where the token's key and value go: block id * block size + offset. Unique."""
    query_ends: list[int] = field(default_factory=list)
    """[B] cumulative ends in ``token_ids``; the last one is T."""
    kv_lengths: list[int] = field(default_factory=list)
    """[B] tokens of the sequence in the cache after this step (cached ones and this step's)."""
    block_tables: list[list[int]] = field(default_factory=list)
    """[B] block ids of the sequence, enough for its kv length."""
    grid_positions: Positions | None = None
    """[3, T] time, row and column of each token, for models that count in M-RoPE; ``None`` when all three are equal to
    ``positions``."""
    overlays: list[Overlay] = field(default_factory=list)
    """Rows that are media."""
    adapters: list[str | None] = field(default_factory=list)
    """[B] LoRA adapter of each sequence; empty when none has one."""
    samples: list[SampleRow] = field(default_factory=list)
    """Draws for the sequences whose prompt is complete after this step, in batch order; a prompt that several sequences
    will continue has one for each."""


@dataclass(slots=True, frozen=True)
class Candidates:
    """One row's. Each is made when it is looked at: a step of a wide search has tens of thousands."""

    token_ids: list[int]
    scores: list[float]
    logprobs: list[float]

    def __iter__(self) -> Iterator[Candidate]:
        return map(Candidate, self.token_ids, self.scores, self.logprobs)


@dataclass(slots=True, frozen=True)
class Sampled:
    """The token drawn for one ``SampleRow``, or why none could be."""

    token_id: int
    failure: str | None = None
    """For example non-finite logits: the sequence fails alone."""
    logprobs: TokenLogprobs | None = None
    """When they were asked for; of a beam's row the likeliest tokens are those of all its candidates."""
    candidates: Iterable[Candidate] = ()
    """Best first; of rows that asked for them."""


class Runner(Protocol):
    """The model on a device. One thread uses it."""

    num_blocks: int
    block_size: int
    encoder: Encoder | None
    """Of a model that takes media; ``run`` finds the embeddings of ``StepBatch.overlays`` in it."""

    def run(self, batch: StepBatch) -> list[Sampled]:
        """Run one step: write keys and values into the slots, return one result per ``batch.samples``, in order."""

    def copy_blocks(self, pairs: list[tuple[int, int]]) -> None:
        """Copy whole KV blocks, (from, to) each, as if all were read before any is written. Destinations are unique."""

    def forget(self, sequence_id: int) -> None:
        """The sequence has ended or will be recomputed: drop what the sampler keeps for it. Unknown ids are ignored."""
