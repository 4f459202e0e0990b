"""From the engine's events to the bodies and chunks of the answer. Pure: no clock, no socket, no engine.

The key order on the wire is the order of the generated models' fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET

from mindserve.api._generated.models import (
    AssistantMessage,
    ChatCompletion,
    ChatCompletionChunk,
    Choice,
    ChoiceLogprobs,
    ChunkChoice,
    ChunkDelta,
    PromptTokensDetails,
    TokenLogprob,
    Usage,
)
from mindserve.api.logprobs import LogprobWriter
from mindserve.chat.output import Finish, SequenceText
from mindserve_engine.types import SequenceEvent, TokenTiming


class AnswerHead(msgspec.Struct, frozen=True, kw_only=True):
    """What every body and chunk of one answer begins with."""

    id: str
    created: int
    """When the request arrived, Unix seconds."""
    model: str
    """The name the request gave."""


@dataclass(slots=True)
class _Sequence:
    source: SequenceText
    texts: list[str] = field(default_factory=list)
    timings: list[TokenTiming] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    num_told: int = 0
    """Entries of ``logprobs`` that chunks have carried."""
    cumulative_logprob: float = 0.0
    finish_reason: Finish | None = None

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def untold_logprobs(self) -> list[TokenLogprob]:
        """Entries since the last call: those of tokens whose text was held back wait here with it."""
        untold = self.logprobs[self.num_told :]
        self.num_told = len(self.logprobs)
        return untold


class Answer:
    """What has come of one request: text, figures and ends of its sequences."""

    def __init__(
        self,
        head: AnswerHead,
        texts: Sequence[SequenceText],
        *,
        logprobs: LogprobWriter | None = None,
        ranked: bool = False,
    ) -> None:
        """``logprobs``: the client wants to see them. ``ranked``: the whole answer has the likeliest sequence first,
        by the sum of its tokens' log-probabilities (reading R7); the engine must report them."""
        self._logprobs = logprobs
        self._ranked = ranked
        self._head = head
        self._sequences = [_Sequence(source) for source in texts]
        self._num_prompt_tokens = 0
        self._num_cached_tokens = 0
        self._num_open = len(self._sequences)

    @property
    def is_complete(self) -> bool:
        """Every sequence has its finish reason; what the engine still sends is of no use."""
        return self._num_open == 0

    def has_ended(self, index: int) -> bool:
        """Whether the sequence has its finish reason, be it by a stop string of which the engine knows nothing."""
        return self._sequences[index].finish_reason is not None

    def feed(self, event: SequenceEvent) -> str:
        """Take an event in and return the text it adds. Events after a sequence's end add nothing."""
        sequence = self._sequences[event.index]
        if sequence.finish_reason is not None:
            return ""
        if event.num_prompt_tokens:
            self._num_prompt_tokens = event.num_prompt_tokens
            self._num_cached_tokens = event.num_cached_tokens
        delta = sequence.source.feed(event.token_ids, event.finish_reason)
        sequence.timings += event.timings[: delta.num_tokens]
        if event.logprobs:
            self._feed_logprobs(sequence, event, delta.num_tokens)
        if delta.text:
            sequence.texts.append(delta.text)
        if delta.finish is not None:
            sequence.finish_reason = delta.finish
            self._num_open -= 1
        return delta.text

    def _feed_logprobs(self, sequence: _Sequence, event: SequenceEvent, num_tokens: int) -> None:
        logprobs = event.logprobs[:num_tokens]
        sequence.cumulative_logprob += sum(one.logprob for one in logprobs)
        if self._logprobs is not None:
            sequence.logprobs += self._logprobs.entries(event.token_ids[:num_tokens], logprobs)

    def completion(self) -> ChatCompletion:
        """The whole answer. Every sequence must have ended."""
        ordered = self._sequences
        if self._ranked:
            ordered = sorted(ordered, key=lambda sequence: -sequence.cumulative_logprob)
        longest = max(self._sequences, key=lambda sequence: len(sequence.timings))
        num_generated = sum(len(sequence.timings) for sequence in self._sequences)
        head = self._head
        return ChatCompletion(
            id=head.id,
            object="chat.completion",
            created=head.created,
            model=head.model,
            choices=[self._choice(index, sequence) for index, sequence in enumerate(ordered)],
            usage=self._usage(num_generated, longest.timings),
            prefill_time=whole_ms(longest.timings[0].step_ms) if longest.timings else 0,
            decode_time_arr=[whole_ms(timing.step_ms) for timing in longest.timings[1:]],
        )

    def opening(self) -> list[ChatCompletionChunk]:
        """The role chunk of each sequence: the client learns at once that its request was taken."""
        return [self._chunk(index, "", None) for index in range(len(self._sequences))]

    def chunk(self, event: SequenceEvent, *, full_text: bool) -> ChatCompletionChunk | None:
        """Take an event in and return the chunk it makes, if any: text that is held back makes none.

        ``full_text``: the chunk's content is all text so far (setting fullTextEnabled).
        """
        sequence = self._sequences[event.index]
        if sequence.finish_reason is not None:
            return None
        text = self.feed(event)
        if not text and sequence.finish_reason is None:
            return None
        chunk = self._chunk(event.index, sequence.text if full_text else text, sequence.finish_reason)
        if self._logprobs is not None:
            chunk.choices[0].logprobs = ChoiceLogprobs(content=sequence.untold_logprobs())
        if sequence.finish_reason is not None:
            chunk.usage = self._usage(len(sequence.timings), sequence.timings)
            if full_text:
                chunk.full_text = sequence.text
        return chunk

    def _chunk(self, index: int, content: str, finish_reason: Finish | None) -> ChatCompletionChunk:
        head = self._head
        delta = ChunkDelta(role="assistant", content=content)
        choice = ChunkChoice(index=index, delta=delta, logprobs=None, finish_reason=finish_reason)
        return ChatCompletionChunk(
            id=head.id,
            object="chat.completion.chunk",
            created=head.created,
            model=head.model,
            full_text=UNSET,
            usage=UNSET,
            choices=[choice],
        )

    def _choice(self, index: int, sequence: _Sequence) -> Choice:
        assert sequence.finish_reason is not None, f"sequence {index} has no end"
        return Choice(
            index=index,
            message=AssistantMessage(role="assistant", content=sequence.text, tool_calls=[]),
            logprobs=None if self._logprobs is None else ChoiceLogprobs(content=sequence.logprobs),
            finish_reason=sequence.finish_reason,
        )

    def _usage(self, num_generated: int, timings: list[TokenTiming]) -> Usage:
        return Usage(
            prompt_tokens=self._num_prompt_tokens,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=self._num_cached_tokens),
            completion_tokens=num_generated,
            total_tokens=self._num_prompt_tokens + num_generated,
            batch_size=[timing.batch_size for timing in timings],
            queue_wait_time=[timing.queue_wait_us for timing in timings],
        )


def whole_ms(milliseconds: float) -> int:
    """Halves are rounded up, as the document's examples have it (reading C1)."""
    return int(milliseconds + 0.5)
