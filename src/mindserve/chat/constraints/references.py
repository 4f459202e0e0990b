"""Where the local references of a JSON Schema lead."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote


def target_of(root: Any, reference: str) -> Any:
    """What a JSON Pointer such as ``#/$defs/node`` names in ``root``; ``None`` when it is of another document, or leads
    nowhere."""
    if not reference.startswith("#"):
        return None
    target = root
    for part in unquote(reference.removeprefix("#")).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(target, dict) and key in target:
            target = target[key]
        elif isinstance(target, list) and key.isdigit() and int(key) < len(target):
            target = target[int(key)]
        else:
            return None
    return target
