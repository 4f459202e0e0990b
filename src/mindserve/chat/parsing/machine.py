"""The parser of one sequence's text.

- Reasoning comes first, if at all: the prompt has opened its tag, or the answer begins with it. It ends at the first
  ``</think>``; without one all is reasoning. Nothing inside it is a call.
- Then comes content, in which a family's openings are looked for. A call is given out whole, once it is complete,
  valid and names an offered tool. What looks like a call and is none is content, character for character.
- White space that stands alone beside a call is part of the way calls are written, and goes with it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from mindserve.chat.parsing.pieces import Call, Content, Piece, PieceList, Reasoning
from mindserve.chat.parsing.runs import Run, run_of
from mindserve.chat.parsing.search import LineSearch, MarkSearch, NoSearch, Search, TurnSearch, line_name
from mindserve.chat.parsing.steps import Family, Literals
from mindserve.chat.parsing.toolbox import Toolbox
from mindserve.chat.parsing.walk import Progress, Walk
from mindserve.chat.stop import StopStrings

THINK: Final = "<think>"
THINK_END: Final = "</think>"
_THINK_END: Final = StopStrings([THINK_END])
_OPENING: Final = Literals(choices={THINK: "reasoning"}, otherwise="text")
_NO_TOOLS: Final = Toolbox(())


class CallFormat(NamedTuple):
    """How the model writes calls, and which tools it may call."""

    family: Family
    tools: Toolbox


class AnswerParser:
    """Feed it the sequence's text as it comes, then ``finish``."""

    def __init__(
        self, *, calls: CallFormat | None = None, has_reasoning: bool = False, in_reasoning: bool = False
    ) -> None:
        """``calls``: None, no tools are offered. ``has_reasoning``: the tags of reasoning are looked for.
        ``in_reasoning``: the prompt has opened them, so that the answer begins inside."""
        self._calls = calls
        self._pieces = PieceList()
        self._space: list[str] = []
        """White space at the beginning of a stretch of content: whether it counts depends on what follows."""
        self._is_blank = calls is not None
        """All of the present stretch of content is in ``_space``."""
        self.num_calls = 0
        self.is_reasoning = in_reasoning
        """Whether the text that comes next is reasoning, as far as is known."""
        self._opening: Run | None = run_of(_OPENING, _NO_TOOLS) if has_reasoning else None
        self._search: Search = NoSearch()
        self._walk: Walk | None = None
        self._read: Callable[[str], str] = self._read_opening
        if self._opening is None:
            self._begin_content(at_start=True)

    @property
    def may_be_reasoning(self) -> bool:
        """Content has not begun, as far as is known."""
        return self._opening is not None or self.is_reasoning

    def feed(self, text: str) -> list[Piece]:
        """What is known by now."""
        self._drain(text)
        return self._pieces.take()

    def finish(self, *, is_whole: bool) -> list[Piece]:
        """The text has ended. ``is_whole``: the model ended it, it was not cut at a limit."""
        if self._opening is not None:
            self._leave_opening(self._opening.end().rest)
        if self.is_reasoning:
            self._pieces.add_text(Reasoning, self._search.finish())
            return self._pieces.take()
        while self._walk is not None:
            self._drain(self._take(self._walk.end(is_whole=is_whole)))
        self._say(self._search.finish())
        if not self.num_calls:
            self._pieces.add_text(Content, "".join(self._space))
        return self._pieces.take()

    def _read_opening(self, text: str) -> str:
        assert self._opening is not None
        moved = self._opening.feed(text)
        if moved is None:
            return ""
        self.is_reasoning = self.is_reasoning or moved.state == "reasoning"
        self._leave_opening("")
        return moved.rest

    def _leave_opening(self, text: str) -> None:
        self._opening = None
        if self.is_reasoning:
            self._search = MarkSearch(_THINK_END)
            self._read = self._read_reasoning
        else:
            self._begin_content(at_start=True)
        self._drain(text)

    def _read_reasoning(self, text: str) -> str:
        found = self._search.feed(text)
        self._pieces.add_text(Reasoning, found.before)
        if found.mark is not None:
            self.is_reasoning = False
            self._begin_content(at_start=True)
        return found.rest

    def _begin_content(self, *, at_start: bool = False) -> None:
        self._read = self._read_content
        if self._calls is None:
            self._search = NoSearch()
            return
        family, tools = self._calls
        if at_start and family.at_start is not None:
            self._begin_walk(Walk(family, tools, family.at_start))
        elif family.tool_line is not None:
            self._search = LineSearch(tools) if family.turn is None else TurnSearch(tools, _compiled((family.turn,)))
        else:
            self._search = MarkSearch(_compiled(tuple(family.marks))) if family.marks else NoSearch()

    def _read_content(self, text: str) -> str:
        found = self._search.feed(text)
        self._say(found.before)
        if found.mark is None:
            return ""
        assert self._calls is not None, "only calls are looked for"
        family, tools = self._calls
        if family.tool_line is not None:
            self._begin_walk(Walk(family, tools, family.tool_line, opening=found.mark, name=line_name(found.mark)))
        else:
            self._begin_walk(Walk(family, tools, family.marks[found.mark], opening=found.mark))
        return found.rest

    def _begin_walk(self, walk: Walk) -> None:
        self._walk = walk
        self._read = self._read_call
        self._search = NoSearch()

    def _read_call(self, text: str) -> str:
        assert self._walk is not None
        return self._take(self._walk.feed(text))

    def _drain(self, text: str) -> None:
        while text:
            text = self._read(text)

    def _take(self, progress: Progress) -> str:
        """What has not been read."""
        for call in progress.calls:
            self._deliver(call)
        if progress.is_over:
            self._walk = None
            self._begin_content()
            self._say(progress.void)
        return progress.rest

    def _deliver(self, call: Call) -> None:
        self._space.clear()
        self._is_blank = True
        self.num_calls += 1
        self._pieces.add_call(call)

    def _say(self, text: str) -> None:
        if self._is_blank and text:
            self._space.append(text)
            if text.isspace():
                return
            text = "".join(self._space)
            self._space.clear()
            self._is_blank = False
        self._pieces.add_text(Content, text)


@lru_cache(maxsize=64)
def _compiled(marks: tuple[str, ...]) -> StopStrings:
    return StopStrings(marks)
