"""How deeply a JSON text nests, without building anything: the guard in front of every decoder."""

from __future__ import annotations

import re
from typing import Final

_STRING_OR_BRACKET: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)


def exceeds_depth(body: bytes, limit: int) -> bool:
    """Whether arrays and objects are nested more than ``limit`` deep. One linear pass, no recursion.

    ``[[1]]`` is 2 deep. The text need not be valid JSON: whatever a decoder would descend into is counted.
    """
    if body.count(b"[") + body.count(b"{") <= limit:
        return False
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(body):
        first = body[match.start()]
        if first in b"[{":
            depth += 1
            if depth > limit:
                return True
        elif first != 0x22:
            depth -= 1
    return False
