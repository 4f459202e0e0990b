"""From an engine's tokens to what the client reads of one sequence: reasoning, content, tool calls, and its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from mindserve.chat.output import SequenceText, TextDelta
from mindserve.chat.parsing.machine import AnswerParser
from mindserve.chat.parsing.pieces import Call, Content, Piece, PieceList, Reasoning
from mindserve_engine.types import FinishReason

Finish = Literal["stop", "length", "tool_calls"]


class AnswerDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What one event of the engine adds to the answer."""

    pieces: list[Piece]
    finish: Finish | None = None
    """Set once, on the last delta of the sequence."""
    num_tokens: int = 0
    """How many of the event's tokens belong to the answer."""


class SequenceAnswer:
    """Feed it every event of one sequence. After the finish it answers with empty deltas."""

    def __init__(self, text: SequenceText, parser: AnswerParser | None = None, *, max_calls: int | None = None) -> None:
        """``parser``: None, all text is content. ``max_calls``: the answer ends with the last of so many calls."""
        self._max_calls = max_calls
        self._num_calls = 0
        self._text = text
        self._parser = parser
        self._num_tokens = 0
        self.num_reasoning_tokens = 0
        """Tokens before the one that closed the chain of thought; all, while none has."""

    def feed(self, token_ids: Sequence[int], finish: FinishReason | None = None) -> AnswerDelta:
        """``token_ids`` and ``finish_reason`` of a ``SequenceEvent``."""
        if self._parser is None:
            delta = self._text.feed(token_ids, finish)
            pieces: list[Piece] = [Content(delta.text)] if delta.text else []
            return AnswerDelta(pieces=pieces, finish=delta.finish, num_tokens=delta.num_tokens)
        if self._parser.may_be_reasoning:
            return self._feed_counting(self._parser, token_ids, finish)
        return self._parse(self._parser, self._text.feed(token_ids, finish))

    def _feed_counting(
        self, parser: AnswerParser, token_ids: Sequence[int], finish: FinishReason | None
    ) -> AnswerDelta:
        """One by one, to see which token closes the chain of thought."""
        pieces = PieceList()
        num_tokens = 0
        steps: list[tuple[Sequence[int], FinishReason | None]] = [((token_id,), None) for token_id in token_ids[:-1]]
        for ids, end in (*steps, (token_ids[-1:], finish)):
            delta = self._parse(parser, self._text.feed(ids, end))
            pieces.add(delta.pieces)
            num_tokens += delta.num_tokens
            if delta.finish is not None:
                return AnswerDelta(pieces=pieces.take(), finish=delta.finish, num_tokens=num_tokens)
        return AnswerDelta(pieces=pieces.take(), num_tokens=num_tokens)

    def _parse(self, parser: AnswerParser, delta: TextDelta) -> AnswerDelta:
        pieces = PieceList()
        written = delta.text[: len(delta.text) - delta.num_eos_characters]
        pieces.add(parser.feed(written))
        if delta.cut and parser.is_reasoning:
            pieces.add(parser.feed(delta.cut))  # there it is shown, whatever the request says (S11)
        self._num_tokens += delta.num_tokens
        if parser.is_reasoning:
            self.num_reasoning_tokens = self._num_tokens
        finish: Finish | None = delta.finish
        if finish is not None:
            pieces.add(parser.finish(is_whole=finish == "stop"))
            pieces.add_text(Reasoning if parser.is_reasoning else Content, delta.text[len(written) :])
            if finish == "stop" and parser.num_calls:
                finish = "tool_calls"
        taken, is_last = self._up_to_last_call(pieces.take())
        return AnswerDelta(pieces=taken, finish="tool_calls" if is_last else finish, num_tokens=delta.num_tokens)

    def _up_to_last_call(self, pieces: list[Piece]) -> tuple[list[Piece], bool]:
        """What of ``pieces`` belongs to the answer, and whether its last call is among it."""
        if self._max_calls is not None:
            for place, piece in enumerate(pieces, start=1):
                self._num_calls += isinstance(piece, Call)
                if self._num_calls == self._max_calls:
                    return pieces[:place], True
        return pieces, False
