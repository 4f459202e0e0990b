"""What predicates get and give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from mindserve.api._generated.models import ChatCompletionRequest
from mindserve.api._generated.rules import Rule
from mindserve.config.settings import ServeSettings


@dataclass(frozen=True, slots=True)
class Subject:
    """The request that is looked at and the settings that widen or narrow some rules."""

    request: ChatCompletionRequest
    settings: ServeSettings


@dataclass(frozen=True, slots=True)
class Breach:
    """Where and how a rule is broken: what its message and field are filled with."""

    value: object = None
    bound: int | float | str | None = None
    """Instead of the rule's own bound, where a setting replaces it."""
    place: Mapping[str, int | str] = field(default_factory=dict)
    """``i``, ``j``, ``key`` of the field's path."""


Predicate: TypeAlias = Callable[[Subject, Rule], Breach | None]


def required_bound(rule: Rule) -> int | float:
    """The bound of a rule whose predicate cannot work without one."""
    assert rule.bound is not None, f"x-rule {rule.id} has no bound"
    return rule.bound
