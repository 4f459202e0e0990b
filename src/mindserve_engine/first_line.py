"""How the errors of libraries are told."""

from __future__ import annotations


def first_line(error: BaseException) -> str:
    """An error of a library as part of one line: its type, and what it says if it says anything."""
    text = str(error).strip().partition("\n")[0].strip()
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
