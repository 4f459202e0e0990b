"""What can be wrong with a config: one fault per place, all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from mindserve.errors import StartupError


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
    """The file was read, but its values cannot be served. The text has one line per fault."""

    def __init__(self, source: Path | None, faults: Sequence[Fault]) -> None:
        head = f"{source}: " if source else ""
        super().__init__("\n".join(f"{head}{fault}" for fault in faults))
        self.faults = tuple(faults)
