"""Telling which of the optional dependencies is missing."""

from __future__ import annotations

from mindserve.errors import StartupError


def not_installed(error: ImportError) -> StartupError:
    """The one line for a library that is not there."""
    name = error.name or str(error)
    return StartupError(f"{name} is not installed: pip install 'mindserve[cpu]' brings what serving a model needs")
