"""`spec/docs/clients.md`: the results of a run for a reader, every blank with its reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from mindserve.config.settings import Dialect

_NOTES: Final = Path(__file__).with_name("notes.yaml")
_WORKS, _FAILS, _ABSENT = "yes", "**no**", "–"


class Cell(NamedTuple):
    """One attempt of one client in one dialect."""

    client: str
    what: str
    dialect: Dialect


@dataclass(frozen=True)
class Note:
    """Why something does not work; ``says`` is part of what the client then complains."""

    says: str
    why: str


@dataclass(frozen=True)
class Notes:
    """``meanings``: attempt -> what it is; ``absent``: attempt -> why other clients do without it."""

    introduction: str
    meanings: dict[str, str]
    absent: dict[str, str]
    failures: dict[Cell, Note]


def read_notes() -> Notes:
    """``notes.yaml``; a failure may name several clients, attempts and dialects at once."""
    data = yaml.safe_load(_NOTES.read_text("utf-8"))
    failures = {
        Cell(client, what, Dialect(data_failure["dialect"])): Note(data_failure["says"], data_failure["why"].strip())
        for data_failure in data["failures"]
        for client in data_failure["clients"]
        for what in data_failure["whats"]
    }
    return Notes(data["introduction"], data["meanings"], data["absent"], failures)


def page(versions: dict[str, str], found: dict[Cell, str], notes: Notes) -> str:
    """The Markdown text; ``versions``: client -> version, in the order of the columns."""
    reasons = _Reasons()
    parts = ["# Clients", notes.introduction.strip(), _meanings(notes)]
    for dialect in Dialect:
        parts += [f"## Dialect `{dialect}`", _table(dialect, versions, found, notes, reasons)]
    parts += ["## Why not", "\n".join(f"{number}. {why}" for number, why in enumerate(reasons.texts, 1))]
    return "\n\n".join(parts) + "\n"


class _Reasons:
    """Numbers for reasons, in the order in which they are first given."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def number(self, text: str) -> int:
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text) + 1


def _meanings(notes: Notes) -> str:
    return "\n".join(["| attempt | what it is |", "|---|---|", *(_row(item) for item in notes.meanings.items())])


def _table(dialect: Dialect, versions: dict[str, str], found: dict[Cell, str], notes: Notes, reasons: _Reasons) -> str:
    heads = ["", *(f"{client} {version}" for client, version in versions.items())]
    rows = (
        [what, *(_cell(Cell(client, what, dialect), found, notes, reasons) for client in versions)]
        for what in notes.meanings
    )
    return "\n".join([_row(heads), "|---" * len(heads) + "|", *map(_row, rows)])


def _cell(cell: Cell, found: dict[Cell, str], notes: Notes, reasons: _Reasons) -> str:
    if cell not in found:
        return f"{_ABSENT} ({reasons.number(notes.absent[cell.what])})"
    return f"{_FAILS} ({reasons.number(notes.failures[cell].why)})" if found[cell] else _WORKS


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def told_by(text: str) -> dict[Cell, bool]:
    """What a page says of each attempt: whether it works."""
    return {
        Cell(client, what, dialect): state == _WORKS
        for dialect, rows in _tables(text)
        for what, *states in rows[2:]
        for client, state in zip((re.sub(r" \S+$", "", head) for head in rows[0][1:]), states, strict=True)
        if not state.startswith(_ABSENT)
    }


def _tables(text: str) -> Iterator[tuple[Dialect, list[list[str]]]]:
    for dialect in Dialect:
        section = text.split(f"## Dialect `{dialect}`\n")[1].split("\n## ")[0]
        lines = [line for line in section.splitlines() if line.startswith("|")]
        yield dialect, [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
