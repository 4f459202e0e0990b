"""What can be wrong with a config: one fault per place, all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from mindserve.errors import StartupError

MAX_TOLD: Final = 100
"""More lines than this about one file help nobody."""


class Fault(msgspec.Struct, frozen=True):
    """One thing that is wrong, and where."""

    path: str
    """Place in the file, as ``BackendConfig.ModelDeployConfig.ModelConfig[0].modelName``; empty: the whole file."""
    problem: str
    """Names the bound and the value received."""

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}" if self.path else self.problem


class ConfigUnreadable(StartupError):
    """The file cannot be read as one JSON object."""


class ConfigInvalid(StartupError):
    """The file was read, but its values cannot be served. The text has one line per fault, up to ``MAX_TOLD``, and then
    the ``notes``: what is no fault, but may be what went wrong."""

    def __init__(self, source: Path | None, faults: Sequence[Fault], notes: Sequence[str] = ()) -> None:
        head = f"{source}: " if source else ""
        lines = [f"{head}{fault}" for fault in faults[:MAX_TOLD]]
        if len(faults) > MAX_TOLD:
            lines.append(f"{head}and {len(faults) - MAX_TOLD} more faults")
        lines += [f"{head}{note}" for note in notes]
        super().__init__("\n".join(lines))
        self.faults = tuple(faults)
