"""What an answer is made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import msgspec


class Content(msgspec.Struct, frozen=True):
    """Text for the reader."""

    text: str


class Reasoning(msgspec.Struct, frozen=True):
    """Text of the chain of thought, its tags not included."""

    text: str


class Call(msgspec.Struct, frozen=True):
    """A whole call of a tool that the request offers."""

    name: str
    arguments: str
    """JSON text of an object; where the model wrote JSON, its own text."""


Piece: TypeAlias = Content | Reasoning | Call


class PieceList:
    """Pieces in order; neighbours of one kind become one, empty ones vanish."""

    def __init__(self) -> None:
        self._parts: list[tuple[type[Content | Reasoning], list[str]] | Call] = []

    def add_text(self, kind: type[Content | Reasoning], text: str) -> None:
        if not text:
            return
        last = self._parts[-1] if self._parts else None
        if isinstance(last, tuple) and last[0] is kind:
            last[1].append(text)
        else:
            self._parts.append((kind, [text]))

    def add_call(self, call: Call) -> None:
        self._parts.append(call)

    def add(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            if isinstance(piece, Call):
                self.add_call(piece)
            else:
                self.add_text(type(piece), piece.text)

    def take(self) -> list[Piece]:
        """What has come since the last time."""
        parts, self._parts = self._parts, []
        return [part if isinstance(part, Call) else part[0]("".join(part[1])) for part in parts]
