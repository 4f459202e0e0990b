"""Writes grammars in llguidance's Lark form."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final

from mindserve.chat.constraints.schema import Schema
from mindserve.chat.control_tokens import any_of

ANY_TEXT: Final = r"(.|\n)*"
_SLASH: Final = re.compile(r"/")


class Lark:
    """A grammar in the making. Expressions are text; rules get names of their own."""

    def __init__(self, special_tokens: Mapping[str, int]) -> None:
        """``special_tokens``: text and id of the control tokens, which a grammar must ask for by id."""
        self._special = special_tokens
        self._pattern = any_of(sorted(special_tokens, key=len, reverse=True))
        self._rules: list[str] = []

    def text(self, text: str) -> str:
        """Exactly this text, spelled out: what a request says never becomes a control token."""
        return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

    def mark(self, text: str) -> str:
        """Text of a model's format: the control tokens that stand in it are asked for as such."""
        return " ".join(self._pieces(text)) or self.text("")

    def json(self, schema: Schema) -> str:
        """JSON that fits ``schema``, which says how it is written (see ``schema.enforced``)."""
        return "%json " + json.dumps(schema, ensure_ascii=False)

    def rule(self, expression: str) -> str:
        """A new rule; returns its name."""
        name = f"r{len(self._rules)}"
        self._rules.append(f"{name}: {expression}")
        return name

    def lazy(self, pattern: str) -> str:
        """The shortest text that fits the pattern: what it ends with occurs nowhere before."""
        name = f"r{len(self._rules)}"
        self._rules.append(f"{name}[lazy]: /{pattern}/")
        return name

    def any_text(self) -> str:
        return self.rule(f"/{ANY_TEXT}/")

    def through(self, mark: str) -> str:
        """Any text up to the first ``mark``, and the mark."""
        if mark in self._special:
            return f"{self.any_text()} {self.mark(mark)}"
        return self.lazy(ANY_TEXT + escaped(mark))

    def finish(self, start: str) -> str:
        return "\n".join(["%llguidance {}", f"start: {start}", *self._rules, ""])

    def _pieces(self, text: str) -> Iterable[str]:
        start = 0
        for found in self._pattern.finditer(text):
            if found.start() > start:
                yield self.text(text[start : found.start()])
            yield f"<[{self._special[found[0]]}]>"
            start = found.end()
        if start < len(text):
            yield self.text(text[start:])


def escaped(text: str) -> str:
    """A pattern for exactly this text, fit to stand between slashes."""
    pattern = re.escape(text).replace("\n", "\\n").replace("\x7f", "\\x7f").replace("\\ ", " ")
    return _SLASH.sub(r"\\/", pattern)


def one_of(expressions: Iterable[str]) -> str:
    return "(" + " | ".join(expressions) + ")"
