"""From an engine's tokens to the text of one sequence, and why it ended.

- An end-of-sequence token ends the text; it is shown only where special tokens are (``skip_special_tokens`` false).
- A token of ``stop_token_ids`` ends the text and is not part of it, unless ``include_stop_str_in_output`` (document,
  lines 52 and 53).
- A stop string ends the text where it was found. Tokens after the one that completed it do not count.
- The last allowed token being an end of sequence or completing a stop string is a normal end: "stop", not "length".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from mindserve.chat.detokenize import Detokenizer, TokenSource
from mindserve.chat.stop import StopSearch, StopStrings
from mindserve_engine.types import FinishReason

Finish = Literal["stop", "length"]


class TextDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What one event of the engine adds to the answer."""

    text: str
    finish: Finish | None = None
    """Set once, on the last delta of the sequence."""
    num_tokens: int = 0
    """How many of the event's tokens belong to the answer: all, or those up to the one that completed a stop string."""
    cut: str = ""
    """The stop string that ended the text, where it is not shown."""
    num_eos_characters: int = 0
    """So many at the end of ``text`` are the end of the sequence, where that is shown: no part of what was said."""


class SequenceText:
    """Feed it every event of one sequence. After the finish it answers with empty deltas."""

    def __init__(
        self,
        tokenizer: TokenSource,
        *,
        skip_special_tokens: bool = True,
        stops: Sequence[str] | StopStrings = (),
        include_stop: bool = False,
    ) -> None:
        """``stops``: strings, or one ``StopStrings`` compiled for all sequences of the request."""
        self._detokenizer = Detokenizer(tokenizer, skip_special_tokens=skip_special_tokens)
        has_stops = bool(stops.stops if isinstance(stops, StopStrings) else stops)
        self._search = StopSearch(stops, include=include_stop) if has_stops else None
        self._include_stop = include_stop
        self._shown_last = {
            FinishReason.EOS: not skip_special_tokens,
            FinishReason.STOP_TOKEN: include_stop,
            FinishReason.LENGTH: True,
        }
        self._done = False

    def feed(self, token_ids: Sequence[int], finish: FinishReason | None = None) -> TextDelta:
        """``token_ids`` and ``finish_reason`` of a ``SequenceEvent``."""
        if self._done:
            return TextDelta(text="")
        hides_last = finish is not None and not self._shown_last[finish]
        shown = token_ids[:-1] if hides_last else token_ids
        if self._search is None:
            if finish is None:
                return TextDelta(text=self._detokenizer.feed(shown), num_tokens=len(token_ids))
            text, last = self._detokenizer.feed(shown[:-1]), self._detokenizer.feed(shown[-1:])
            last += self._detokenizer.finish()
            return self._end(text + last, finish, num_tokens=len(token_ids), num_last=len(last))
        return self._feed_searching(self._search, shown, finish, num_tokens=len(token_ids))

    def _feed_searching(
        self, search: StopSearch, shown: Sequence[int], finish: FinishReason | None, *, num_tokens: int
    ) -> TextDelta:
        parts: list[str] = []
        last = ""
        for position, token_id in enumerate(shown):  # one by one: the token that completes a match is the last to count
            last = self._detokenizer.feed((token_id,))
            result = search.feed(last)
            parts.append(result.text)
            if result.matched is not None:
                return self._stop("".join(parts), result.matched, num_tokens=position + 1)
        if finish is None:
            return TextDelta(text="".join(parts), num_tokens=num_tokens)
        rest = self._detokenizer.finish()
        result = search.feed(rest)
        parts.append(result.text)
        if result.matched is not None:
            return self._stop("".join(parts), result.matched, num_tokens=num_tokens)
        text = "".join(parts) + search.finish()
        return self._end(text, finish, num_tokens=num_tokens, num_last=len(last) + len(rest))

    def _stop(self, text: str, matched: str, *, num_tokens: int) -> TextDelta:
        self._done = True
        return TextDelta(text=text, finish="stop", num_tokens=num_tokens, cut="" if self._include_stop else matched)

    def _end(self, text: str, finish: FinishReason, *, num_tokens: int, num_last: int) -> TextDelta:
        """``num_last``: characters of the last token that is shown."""
        self._done = True
        is_eos_shown = finish is FinishReason.EOS and self._shown_last[finish]
        return TextDelta(
            text=text,
            finish="length" if finish is FinishReason.LENGTH else "stop",
            num_tokens=num_tokens,
            num_eos_characters=num_last if is_eos_shown else 0,
        )
