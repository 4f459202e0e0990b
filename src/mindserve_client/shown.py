"""Values in messages for people, as the server shows them."""

from __future__ import annotations

import json
from typing import Final

_MAX_CHARACTERS: Final = 64


def shown(value: object) -> str:
    """A JSON scalar, cut when it is long; of everything else only what it is."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)} items" if len(value) != 1 else "a list of 1 item"
    if value is not None and not isinstance(value, str | int | float):
        return f"a {type(value).__name__}"
    text = json.dumps(value[: _MAX_CHARACTERS + 1] if isinstance(value, str) else value, ensure_ascii=False)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"
