"""Where calls open in text that arrives in pieces."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from mindserve.chat.parsing.toolbox import Toolbox
from mindserve.chat.stop import StopSearch, StopStrings

_MAX_TRAILING_SPACE = 16
_TRAILING_SPACE = " \t\r"
"""Behind a name on its line; other white space may be a part of it."""


class Found(NamedTuple):
    """``before`` may be given out; ``mark`` is what was looked for, and ``rest`` the text behind it."""

    before: str
    mark: str | None = None
    rest: str = ""


class Search(Protocol):
    """Feed it text until it finds something, and then no more; or until the text ends, then ``finish``."""

    def feed(self, text: str) -> Found: ...

    def finish(self) -> str:
        """The text has ended: what was held back is nothing that was looked for."""


class NoSearch:
    """Looks for nothing."""

    def feed(self, text: str) -> Found:
        return Found(text)

    def finish(self) -> str:
        return ""


class MarkSearch:
    """Looks for fixed texts, wherever they stand."""

    def __init__(self, marks: StopStrings) -> None:
        self._search = StopSearch(marks)
        self._num_held = 0

    def feed(self, text: str) -> Found:
        result = self._search.feed(text)
        before, mark = result.text, result.matched
        if mark is None:
            self._num_held += len(text) - len(before)
            return Found(before)
        return Found(before, mark, text[len(before) + len(mark) - self._num_held :])

    def finish(self) -> str:
        return self._search.finish()


class LineSearch:
    """Looks for a whole line that is the name of a tool. Fed from the start of a line."""

    def __init__(self, tools: Toolbox) -> None:
        self._tools = tools
        self._line = ""
        """The line so far, while it may be a name."""
        self._is_text = False
        """The line is known to be no name."""

    def feed(self, text: str) -> Found:
        before: list[str] = []
        while text:
            head, newline, text = text.partition("\n")
            if self._is_text:
                before.append(head + newline)
                self._is_text = not newline
                continue
            self._line += head
            if newline and self._line.rstrip(_TRAILING_SPACE) in self._tools:
                mark, self._line = self._line + newline, ""
                return Found("".join(before), mark, text)
            if newline or not self._may_be_name():
                before.append(self._line + newline)
                self._line = ""
                self._is_text = not newline
        return Found("".join(before))

    def finish(self) -> str:
        line, self._line = self._line, ""
        return line

    def _may_be_name(self) -> bool:
        name = self._line.rstrip(_TRAILING_SPACE)
        if len(self._line) - len(name) > _MAX_TRAILING_SPACE:
            return False
        return self._tools.begins_a_name(self._line) or (name != self._line and name in self._tools)


class TurnSearch:
    """``LineSearch`` in text that a mark cuts into turns. Each begins a line; the space in front of its first word is
    the tokenizer's."""

    def __init__(self, tools: Toolbox, turn: StopStrings) -> None:
        self._turns = MarkSearch(turn)
        self._lines = LineSearch(tools)
        self._is_new_turn = False
        """No text of the turn has come."""
        self._is_new_line = True

    def feed(self, text: str) -> Found:
        before: list[str] = []
        while True:
            turn = self._turns.feed(text)
            found = self._lines.feed(self._without_space(turn.before))
            before.append(found.before)
            if found.mark is not None:
                return Found("".join(before), found.mark, found.rest + (turn.mark or self._turns.finish()) + turn.rest)
            if turn.mark is None:
                return Found("".join(before))
            if not self._is_new_line:
                ended = self._lines.feed("\n")
                before.append(ended.before)
                if ended.mark is not None:
                    return Found("".join(before), ended.mark, turn.rest)
            self._is_new_turn = self._is_new_line = True
            text = turn.rest

    def finish(self) -> str:
        return self._lines.feed(self._turns.finish()).before + self._lines.finish()

    def _without_space(self, text: str) -> str:
        if text and self._is_new_turn:
            self._is_new_turn = False
            text = text.removeprefix(" ")
        if text:
            self._is_new_line = text.endswith("\n")
        return text


def line_name(mark: str) -> str:
    """The name of the tool in what ``LineSearch`` has found."""
    return mark.rstrip(_TRAILING_SPACE + "\n")
