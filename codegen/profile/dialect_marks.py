"""Profile of the marks of dialects: a constraint is written once, so what is the same in both is not repeated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from codegen.diagnostics import Diagnostic
from codegen.dialects import OVERLAY
from codegen.pointer import join


def check(value: Any, pointer: str = "") -> Iterator[Diagnostic]:
    """Every keyword of an `x-openai` differs from the one beside it."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from check(item, join(pointer, index))
    elif isinstance(value, dict):
        overlay = value.get(OVERLAY)
        for key, item in overlay.items() if isinstance(overlay, dict) else ():
            if item == value.get(key):
                yield Diagnostic(join(pointer, OVERLAY, key), "dialect", f"`{key}` is the same in both dialects")
        for key, item in value.items():
            yield from check(item, join(pointer, key))
