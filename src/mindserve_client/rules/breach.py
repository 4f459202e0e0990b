"""What predicates get and give. They look at a request as JSON, after its model took it: types are right."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mindserve_client._generated.rules import Rule

Body: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Breach:
    """Where and how a rule is broken: what its message and field are filled with."""

    value: object = None
    bound: int | str | None = None
    """Instead of the rule's own bound, where another field replaces it."""
    place: Mapping[str, int | str] = field(default_factory=dict)
    """``i``, ``j``, ``key`` of the field's path."""


Predicate: TypeAlias = Callable[[Body, Rule], Breach | None]


def exceeds(size: int, rule: Rule, **place: int | str) -> Breach | None:
    """A breach when ``size`` is above the rule's own bound."""
    assert rule.bound is not None, f"x-rule {rule.id} has no bound"
    return Breach(value=size, place=place) if size > rule.bound else None


def num_json_bytes(value: object) -> int:
    """As compact JSON in UTF-8."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))


def may_call_tools(body: Body) -> bool:
    """The model is told of tools and may call them."""
    return bool(body.get("tools")) and body.get("tool_choice") != "none"
