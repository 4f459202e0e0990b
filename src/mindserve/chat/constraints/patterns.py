"""How many patterns of a schema meet at one place of the text.

The grammar compiler takes their intersection, and whether that is empty may take it a time that doubles with each of
them: eight take milliseconds, eighteen a second, thirty-two were not done after forty seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from mindserve.chat.constraints.references import target_of

MAX_MEETING: Final = 8
_NESTING: Final = 256
_BELOW: Final = ("items", "additionalProperties", "additionalItems", "unevaluatedProperties", "contains")


def too_many_meet(schema: Any) -> bool:
    """Whether more than ``MAX_MEETING`` patterns may meet. Counted from above: members of objects that are joined by
    ``allOf`` are taken to meet wherever they might. True as well for what is nested too deeply to tell."""
    return _Count(schema).most(schema, _NESTING) > MAX_MEETING


class _Count:
    """Sums end at ``MAX_MEETING + 1``; what references name is looked at once."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._of_targets: dict[int, int] = {}
        """By their ids: many references may name one."""

    def most(self, schema: Any, depth: int) -> int:
        """The most patterns that meet anywhere in ``schema``."""
        if not isinstance(schema, dict):
            return 0
        if not depth:
            return MAX_MEETING + 1
        depth -= 1
        here = ("pattern" in schema) + ("format" in schema)
        below = max((self.most(one, depth) for one in _parts_below(schema)), default=0)
        ways = [self.most(one, depth) for key in ("anyOf", "oneOf") for one in _listed(schema, key)]
        joined = sum(self.most(one, depth) for one in _listed(schema, "allOf"))
        total = max(here, below) + joined + max(ways, default=0) + self._referred(schema.get("$ref"), depth)
        return min(total, MAX_MEETING + 1)

    def _referred(self, reference: Any, depth: int) -> int:
        if not isinstance(reference, str):
            return 0
        target = target_of(self._root, reference)
        if id(target) not in self._of_targets:
            self._of_targets[id(target)] = 0  # what leads back to itself is another place, deeper in the text
            self._of_targets[id(target)] = self.most(target, depth)
        return self._of_targets[id(target)]


def _parts_below(schema: dict[str, Any]) -> Iterator[Any]:
    for key in ("properties", "patternProperties"):  # patterns of keys must not meet at all
        members = schema.get(key)
        if isinstance(members, dict):
            yield from members.values()
    yield from _listed(schema, "prefixItems")
    for key in _BELOW:
        yield schema.get(key)


def _listed(schema: dict[str, Any], key: str) -> list[Any]:
    listed = schema.get(key)
    return listed if isinstance(listed, list) else []
