"""From the engine's events to the bodies and chunks of the answer. Pure: no clock, no socket, no engine.

The key order on the wire is the order of the generated models' fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    CompletionTokensDetails,
    DeltaToolCall,
    DeltaToolCallFunction,
    PromptTokensDetails,
    TokenLogprob,
    ToolCall,
    ToolCallFunction,
    Usage,
)
from mindserve.api.logprobs import LogprobWriter
from mindserve.chat.answer import Finish, SequenceAnswer
from mindserve.chat.parsing.pieces import Call, Content, Piece, Reasoning
from mindserve_engine.types import SequenceEvent, TokenTiming


class AnswerHead(msgspec.Struct, frozen=True, kw_only=True):
    """What every body and chunk of one answer begins with."""

    id: str
    created: int
    """When the request arrived, Unix seconds."""
    model: str
    """The name the request gave."""
    call_ids: Iterator[str]
    """A name for each tool call, none given twice."""


@dataclass(slots=True)
class _Sequence:
    source: SequenceAnswer
    texts: list[str] = field(default_factory=list)
    """Content alone."""
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
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
        sources: Sequence[SequenceAnswer],
        *,
        logprobs: LogprobWriter | None = None,
        ranked: bool = False,
        can_reason: bool = False,
    ) -> None:
        """``logprobs``: the client wants to see them. ``ranked``: the whole answer has the likeliest sequence first,
        by the sum of its tokens' log-probabilities (reading R7); the engine must report them. ``can_reason``: the model
        thinks, so its usage says how much."""
        self._logprobs = logprobs
        self._ranked = ranked
        self._can_reason = can_reason
        self._head = head
        self._sequences = [_Sequence(source) for source in sources]
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

    def feed(self, event: SequenceEvent) -> list[ChunkDelta]:
        """Take an event in and return what it adds. Events after a sequence's end add nothing."""
        sequence = self._sequences[event.index]
        if sequence.finish_reason is not None:
            return []
        if event.num_prompt_tokens:
            self._num_prompt_tokens = event.num_prompt_tokens
            self._num_cached_tokens = event.num_cached_tokens
        delta = sequence.source.feed(event.token_ids, event.finish_reason)
        sequence.timings += event.timings[: delta.num_tokens]
        if event.logprobs:
            self._feed_logprobs(sequence, event, delta.num_tokens)
        if delta.finish is not None:
            sequence.finish_reason = delta.finish
            self._num_open -= 1
        return [one for piece in delta.pieces for one in self._deltas(sequence, piece)]

    def _deltas(self, sequence: _Sequence, piece: Piece) -> list[ChunkDelta]:
        if isinstance(piece, Content):
            sequence.texts.append(piece.text)
            return [ChunkDelta(role="assistant", content=piece.text)]
        if isinstance(piece, Reasoning):
            sequence.reasoning.append(piece.text)
            return [ChunkDelta(role="assistant", reasoning_content=piece.text)]
        return self._call_deltas(sequence, piece)

    def _call_deltas(self, sequence: _Sequence, call: Call) -> list[ChunkDelta]:
        """Which call it is, then its arguments (reading S13)."""
        index, identifier = len(sequence.calls), next(self._head.call_ids)
        function = ToolCallFunction(arguments=call.arguments, name=call.name)
        sequence.calls.append(ToolCall(function=function, id=identifier, type="function"))
        opening = DeltaToolCall(
            index=index,
            id=identifier,
            type="function",
            function=DeltaToolCallFunction(name=call.name, arguments=""),
        )
        arguments = DeltaToolCall(index=index, function=DeltaToolCallFunction(arguments=call.arguments))
        return [ChunkDelta(role="assistant", tool_calls=[one]) for one in (opening, arguments)]

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
        longest, head = self._longest, self._head
        return ChatCompletion(
            id=head.id,
            object="chat.completion",
            created=head.created,
            model=head.model,
            choices=[self._choice(index, sequence) for index, sequence in enumerate(ordered)],
            usage=self._whole_usage(),
            prefill_time=whole_ms(longest.timings[0].step_ms) if longest.timings else 0,
            decode_time_arr=[whole_ms(timing.step_ms) for timing in longest.timings[1:]],
        )

    def usage_chunk(self) -> ChatCompletionChunk:
        """The token counts of the whole answer, without a choice. Every sequence must have ended."""
        chunk = self._chunk(0, _nothing())
        chunk.choices = []
        chunk.usage = self._whole_usage()
        return chunk

    def opening(self) -> list[ChatCompletionChunk]:
        """The role chunk of each sequence: the client learns at once that its request was taken."""
        return [self._chunk(index, _nothing()) for index in range(len(self._sequences))]

    def chunks(self, event: SequenceEvent, *, full_text: bool) -> list[ChatCompletionChunk]:
        """Take an event in and return the chunks it makes: text that is held back makes none, a tool call several.

        ``full_text``: a chunk's content is all content so far (setting fullTextEnabled).
        """
        sequence = self._sequences[event.index]
        if sequence.finish_reason is not None:
            return []
        num_texts = len(sequence.texts)
        deltas = self.feed(event)
        if sequence.finish_reason is not None and not deltas:
            deltas = [_nothing()]
        if full_text:
            _accumulate(deltas, "".join(sequence.texts[:num_texts]))
        chunks = [self._chunk(event.index, delta) for delta in deltas]
        if self._logprobs is not None:
            for chunk in chunks:
                chunk.choices[0].logprobs = ChoiceLogprobs(content=sequence.untold_logprobs())
        if chunks and sequence.finish_reason is not None:
            self._end(chunks[-1], sequence, full_text=full_text)
        return chunks

    def _end(self, chunk: ChatCompletionChunk, sequence: _Sequence, *, full_text: bool) -> None:
        """Make the last chunk of a sequence of it."""
        chunk.choices[0].finish_reason = sequence.finish_reason
        chunk.usage = self._usage(len(sequence.timings), sequence.timings, [sequence])
        if full_text:
            chunk.full_text = sequence.text

    def _chunk(self, index: int, delta: ChunkDelta) -> ChatCompletionChunk:
        head = self._head
        choice = ChunkChoice(index=index, delta=delta, logprobs=None, finish_reason=None)
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
            message=AssistantMessage(
                role="assistant",
                content=sequence.text,
                reasoning_content="".join(sequence.reasoning) if sequence.reasoning else UNSET,
                tool_calls=sequence.calls,
            ),
            logprobs=None if self._logprobs is None else ChoiceLogprobs(content=sequence.logprobs),
            finish_reason=sequence.finish_reason,
        )

    @property
    def _longest(self) -> _Sequence:
        return max(self._sequences, key=lambda sequence: len(sequence.timings))

    def _whole_usage(self) -> Usage:
        num_generated = sum(len(sequence.timings) for sequence in self._sequences)
        return self._usage(num_generated, self._longest.timings, self._sequences)

    def _usage(self, num_generated: int, timings: list[TokenTiming], sequences: list[_Sequence]) -> Usage:
        num_reasoning = sum(sequence.source.num_reasoning_tokens for sequence in sequences)
        return Usage(
            prompt_tokens=self._num_prompt_tokens,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=self._num_cached_tokens),
            completion_tokens=num_generated,
            completion_tokens_details=(
                CompletionTokensDetails(reasoning_tokens=num_reasoning) if self._can_reason else UNSET
            ),
            total_tokens=self._num_prompt_tokens + num_generated,
            batch_size=[timing.batch_size for timing in timings],
            queue_wait_time=[timing.queue_wait_us for timing in timings],
        )


def _nothing() -> ChunkDelta:
    return ChunkDelta(role="assistant", content="")


def _accumulate(deltas: list[ChunkDelta], told: str) -> None:
    """Put what was ``told`` before in front of each delta's content."""
    for delta in deltas:
        if isinstance(delta.content, str):
            told = delta.content = told + delta.content


def whole_ms(milliseconds: float) -> int:
    """Halves are rounded up, as the document's examples have it (reading C1)."""
    return int(milliseconds + 0.5)
