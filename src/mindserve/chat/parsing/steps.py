"""The words in which a family's way of writing calls is told: a table of steps, one per state.

A call begins where one of the family's openings stands. From there the table is walked: each step reads some text and
names the state that follows. Text that fits no step makes the whole try void, and it is content again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec

from mindserve.chat.parsing.pieces import Call
from mindserve.chat.parsing.search import line_name
from mindserve.chat.parsing.toolbox import Toolbox

DONE: Final = "done"
"""The state in which calls are over and text is content again."""

MAX_NAME: Final = 256
"""Characters in which the end of a tool's name must be found, where nothing else bounds it."""

Captures: TypeAlias = dict[str, list[str]]
"""Texts that steps have kept, by the name the step gives them, in order."""


class Literals(msgspec.Struct, frozen=True, kw_only=True):
    """White space, then one of a few texts; the longest that fits counts."""

    choices: Mapping[str, str]
    """The state that follows each text."""
    otherwise: str | None = None
    """Follows when no choice fits; white space is not read then."""
    at_end: str | None = None
    """Follows when the answer ends here by itself."""


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """Anything up to one of a few texts, none of which begins another."""

    name: str
    ends: Mapping[str, str]
    """The state that follows each text."""
    is_tool: bool = False
    """It must be the name of an offered tool; white space around it does not count."""
    limit: int | None = None
    """Characters before the end."""
    at_end: str | None = None
    """Follows when the answer ends here by itself."""


class JsonObject(msgspec.Struct, frozen=True, kw_only=True):
    """White space, then one JSON object. It is checked roughly here, and wholly when the call is made."""

    name: str
    next: str
    first_keys: frozenset[str] = frozenset()
    """Another first key shows at once that this is no call; empty: any may come."""


class Deliver(msgspec.Struct, frozen=True, kw_only=True):
    """Make calls of what was kept. From here on they are the client's, whatever follows."""

    make: Callable[[Captures, Toolbox], list[Call] | None]
    """None: what was kept makes no call."""
    next: str = DONE


Step: TypeAlias = Literals | Text | JsonObject | Deliver


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """How one family of models writes tool calls."""

    name: str
    table: Mapping[str, Step]
    marks: Mapping[str, str] = {}
    """Texts that open a call wherever they stand, and the state that follows each."""
    tool_line: str | None = None
    """A line that is the name of an offered tool opens a call, with this state; the line is kept as ``name``."""
    turn: str | None = None
    """With ``tool_line``: a text that opens another turn of the model within one answer. It stands for a new line."""
    at_start: str | None = None
    """The state in which the answer begins: calls are looked for there and nowhere else."""

    def literals(self) -> set[str]:
        """Every text that the table or an opening looks for."""
        found = {*self.marks, *([self.turn] if self.turn else [])}
        for step in self.table.values():
            if isinstance(step, Literals):
                found |= step.choices.keys()
            elif isinstance(step, Text):
                found |= step.ends.keys()
        return found

    def can_name(self, name: str) -> bool:
        """Whether a call of a tool of this name can be written so that it is read as one."""
        if self.tool_line is not None:
            return "\n" not in name and line_name(name) == name
        steps = [step for step in self.table.values() if isinstance(step, Text) and step.is_tool]
        return all(
            name == name.strip()
            and (step.limit is None or len(name) <= step.limit)
            and not any(end in name for end in step.ends)
            for step in steps
        )
