"""Steps at work: each reads text that arrives in pieces until it knows which state follows.

What a step decides depends on the text alone, never on how it was cut.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, Protocol

from mindserve.chat.control_tokens import any_of
from mindserve.chat.parsing.steps import Deliver, JsonObject, Literals, Step, Text
from mindserve.chat.parsing.toolbox import Toolbox

_SPACE: Final = " \t\r\n"
_OUTSIDE: Final = re.compile(r"[ \t\r\n0-9+\-.:,eEtrufalsn]*")
"""What may stand in JSON between its brackets and strings."""
_INSIDE: Final = re.compile(r'[^"\\\x00-\x1f]*')
"""What may stand in a string, but for escapes."""


class Moved(NamedTuple):
    """The step is over. ``state`` None: the text does not fit; ``rest`` is what it has not read, or gives back."""

    state: str | None
    rest: str = ""
    name: str = ""
    value: str = ""
    """Text to be kept under ``name``."""


class Run(Protocol):
    """One step at work."""

    def feed(self, text: str) -> Moved | None:
        """None: all was read, and more must come."""

    def end(self) -> Moved:
        """The answer ended here by itself."""


def run_of(step: Step, tools: Toolbox) -> Run:
    if isinstance(step, Literals):
        return _LiteralsRun(step)
    if isinstance(step, Text):
        return _TextRun(step, tools)
    assert not isinstance(step, Deliver), "delivering reads no text"
    return _JsonRun(step)


class _LiteralsRun:
    def __init__(self, step: Literals) -> None:
        self._step = step
        self._space: list[str] = []
        self._held = ""

    def feed(self, text: str) -> Moved | None:
        if not self._held:
            stripped = text.lstrip(_SPACE)
            self._space.append(text[: len(text) - len(stripped)])
            text = stripped
        self._held += text
        if not self._held or any(choice.startswith(self._held) for choice in self._longer()):
            return None
        return self._decide()

    def end(self) -> Moved:
        if self._held:
            return self._decide()
        return Moved(self._step.at_end) if self._step.at_end is not None else Moved(None, "".join(self._space))

    def _longer(self) -> list[str]:
        return [choice for choice in self._step.choices if len(choice) > len(self._held)]

    def _decide(self) -> Moved:
        fitting = max((choice for choice in self._step.choices if self._held.startswith(choice)), key=len, default="")
        if fitting:
            return Moved(self._step.choices[fitting], self._held[len(fitting) :])
        if self._step.otherwise is not None:
            return Moved(self._step.otherwise, "".join(self._space) + self._held)
        return Moved(None, self._held)


class _TextRun:
    def __init__(self, step: Text, tools: Toolbox) -> None:
        self._step = step
        self._tools = tools
        self._pattern = any_of(step.ends)
        self._num_kept = max(map(len, step.ends), default=1) - 1
        """Characters at the end that may begin one of the ends."""
        self._parts: list[str] = []
        self._size = 0
        self._tail = ""

    def feed(self, text: str) -> Moved | None:
        window = self._tail + text
        limit = len(window) if self._step.limit is None else self._step.limit - self._size
        end = self._pattern.search(window)
        if end is not None and end.start() <= limit:
            return self._over(window[: end.start()], self._step.ends[end[0]], window[end.end() :])
        if end is not None or len(window) - self._num_kept > limit:
            whole = "".join(self._parts) + window
            return Moved(None, whole[self._step.limit :])
        cut = max(0, len(window) - self._num_kept)
        self._parts.append(window[:cut])
        self._size += cut
        self._tail = window[cut:]
        return None

    def end(self) -> Moved:
        return Moved(None) if self._step.at_end is None else self._over(self._tail, self._step.at_end, "")

    def _over(self, last: str, state: str, rest: str) -> Moved:
        value = "".join(self._parts) + last
        if self._step.is_tool:
            value = value.strip()
            if value not in self._tools:
                return Moved(None, rest)
        return Moved(state, rest, self._step.name, value)


class _JsonRun:
    """Finds the end of a JSON object: brackets are counted outside of strings."""

    def __init__(self, step: JsonObject) -> None:
        self._step = step
        self._parts: list[str] = []
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._is_first_key = bool(step.first_keys)
        self._failed = False

    def feed(self, text: str) -> Moved | None:
        if not self._depth:
            text = text.lstrip(_SPACE)
            if text and text[0] != "{":
                return Moved(None, text)
        position = 0
        while position < len(text):
            position = self._in(text, position) if self._in_string else self._out(text, position)
            if self._failed:
                return Moved(None, text[position:])
            if not self._depth:
                value = "".join(self._parts) + text[:position]
                return Moved(self._step.next, text[position:], self._step.name, value)
        self._parts.append(text)
        return None

    def end(self) -> Moved:
        return Moved(None)

    def _out(self, text: str, position: int) -> int:
        """Where reading goes on, or has failed."""
        position = _skip(_OUTSIDE, text, position)
        if position == len(text):
            return position
        character = text[position]
        if character == '"':
            self._in_string = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
        else:
            self._failed = True
            return position
        return position + 1

    def _in(self, text: str, position: int) -> int:
        """As ``_out``, inside a string."""
        if self._escaped:
            self._escaped = False
            return position + 1
        position = _skip(_INSIDE, text, position)
        if position == len(text):
            return position
        if text[position] == '"':
            self._in_string = False
            self._failed = self._is_first_key and not self._knows_key(text[:position])
        elif text[position] == "\\":
            self._escaped = True
        else:
            self._failed = True
            return position
        return position + 1

    def _knows_key(self, text: str) -> bool:
        self._is_first_key = False
        return ("".join(self._parts) + text).partition('"')[2] in self._step.first_keys


def _skip(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return position if match is None else match.end()
