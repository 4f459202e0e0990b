"""The tools that a request offers, as a parser needs them."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping
from typing import Any

from mindserve.chat.parsing.value_types import types_of


class Toolbox:
    """Names and parameter schemas of the offered tools."""

    def __init__(self, tools: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Pairs of a name and the schema of its arguments (``{}`` for none). Of equal names the first counts."""
        self._schemas: dict[str, Mapping[str, Any]] = {}
        for name, schema in tools:
            self._schemas.setdefault(name, schema)
        self._sorted = sorted(self._schemas)

    def __contains__(self, name: str) -> bool:
        return name in self._schemas

    def begins_a_name(self, text: str) -> bool:
        """Whether a tool's name begins with ``text``."""
        place = bisect.bisect_left(self._sorted, text)
        return place < len(self._sorted) and self._sorted[place].startswith(text)

    def parameter(self, tool: str, name: str) -> Mapping[str, Any] | None:
        """The schema of one parameter; None where the tool's schema does not tell of it."""
        properties = self._schemas[tool].get("properties")
        schema = properties.get(name) if isinstance(properties, dict) else None
        return schema if isinstance(schema, dict) else None

    def parameter_types(self, tool: str, name: str) -> frozenset[str]:
        """The JSON types that one parameter may have; all, where the tool's schema does not tell."""
        return types_of(self.parameter(tool, name), self._schemas[tool])
