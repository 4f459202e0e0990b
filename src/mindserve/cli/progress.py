"""Progress of slow steps: a bar on a terminal, a few plain lines anywhere else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

_LINE_STEP: Final = 0.25
"""Plain lines are written each time another quarter is done."""


class Step(Protocol):
    """One slow step. ``None`` as the done part: it cannot be told."""

    def update(self, done: float | None, note: str = "") -> None: ...


class _BarStep:
    def __init__(self, progress: Progress, task: TaskID, title: str) -> None:
        self._progress, self._task, self._title = progress, task, title

    def update(self, done: float | None, note: str = "") -> None:
        text = f"{self._title} ({note})" if note else self._title
        total = None if done is None else 1.0
        self._progress.update(self._task, description=text, total=total, completed=done or 0.0)


class _LineStep:
    def __init__(self, console: Console, title: str) -> None:
        self._console, self._title = console, title
        self._next, self._note = _LINE_STEP, ""
        self._write("...")

    def update(self, done: float | None, note: str = "") -> None:
        if note and note != self._note:
            self._note = note
            self._write(note)
        if done is not None and self._next <= done < 1.0:
            self._write(f"{done:.0%}")
            self._next = (done // _LINE_STEP + 1) * _LINE_STEP

    def _write(self, text: str) -> None:
        self._console.print(f"{self._title}: {text}", highlight=False, markup=False, soft_wrap=True)


@contextmanager
def progress_step(console: Console, title: str) -> Iterator[Step]:
    """Show ``title`` while the block runs."""
    if not console.is_terminal:
        yield _LineStep(console, title)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield _BarStep(progress, progress.add_task(title, total=None), title)
