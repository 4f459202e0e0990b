"""One try at reading calls: a family's table, walked from the place where a call opens."""

from __future__ import annotations

from typing import NamedTuple

from mindserve.chat.parsing.pieces import Call
from mindserve.chat.parsing.runs import Moved, run_of
from mindserve.chat.parsing.steps import DONE, Captures, Deliver, Family
from mindserve.chat.parsing.toolbox import Toolbox


class Progress(NamedTuple):
    """``calls`` are the client's. When the walk ``is_over``, ``void`` is content after all, and ``rest`` was not read;
    it may open the next call."""

    calls: list[Call]
    is_over: bool = False
    void: str = ""
    rest: str = ""


class Walk:
    """Feed it text until it is over."""

    def __init__(self, family: Family, tools: Toolbox, state: str, *, opening: str = "", name: str = "") -> None:
        """``opening``: the text that was read so far. ``name``: the tool's, where the opening tells it."""
        self._family = family
        self._tools = tools
        self._state = state
        self._raw = [opening]
        """All text since calls were last delivered: content, should the rest not fit."""
        self._captures: Captures = {"name": [name]} if name else {}
        self._calls: list[Call] = []
        self._enter(state)

    def feed(self, text: str) -> Progress:
        while True:
            if self._state == DONE:
                return self._over(text)
            if not text:
                return Progress(self._take())
            self._raw.append(text)
            moved = self._run.feed(text)
            if moved is None:
                return Progress(self._take())
            text = moved.rest
            if not self._move(moved):
                return self._void(text)

    def end(self, *, is_whole: bool) -> Progress:
        """The answer has ended; ``is_whole``: by itself, so that what is a call but for its closing tag is one."""
        while is_whole:
            moved = self._run.end()
            if not self._move(moved):
                return self._void(moved.rest)
            progress = self.feed(moved.rest)
            if progress.is_over:
                return progress
            self._calls = progress.calls
        return self._void("")

    def _move(self, moved: Moved) -> bool:
        """False: what was read makes no call."""
        self._unread(len(moved.rest))
        if moved.name:
            self._captures.setdefault(moved.name, []).append(moved.value)
        return moved.state is not None and self._enter(moved.state)

    def _enter(self, state: str) -> bool:
        step = self._family.table.get(state)
        if isinstance(step, Deliver):
            calls = step.make(self._captures, self._tools)
            if calls is None:
                return False
            self._calls += calls
            self._captures = {}
            self._raw = []
            return self._enter(step.next)
        self._state = state
        if step is not None:
            self._run = run_of(step, self._tools)
        return True

    def _unread(self, num_characters: int) -> None:
        while num_characters:
            last = self._raw.pop()
            if len(last) > num_characters:
                self._raw.append(last[:-num_characters])
            num_characters = max(0, num_characters - len(last))

    def _take(self) -> list[Call]:
        calls, self._calls = self._calls, []
        return calls

    def _over(self, rest: str) -> Progress:
        return Progress(self._take(), is_over=True, rest=rest)

    def _void(self, rest: str) -> Progress:
        return Progress(self._take(), is_over=True, void="".join(self._raw), rest=rest)
