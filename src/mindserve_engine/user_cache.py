"""Where this user keeps what can be made or fetched again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def cache_folder(environ: Mapping[str, str]) -> Path:
    """``$XDG_CACHE_HOME/mindserve``, or the one in ``~/.cache``."""
    root = environ.get("XDG_CACHE_HOME", "")
    return (Path(root) if Path(root).is_absolute() else Path.home() / ".cache") / "mindserve"
