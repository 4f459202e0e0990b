"""The cases of ``cases/rules.yaml``: for every x-rule a request that breaks it and one that just keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_FILE = Path(__file__).parent / "cases" / "rules.yaml"


@dataclass(frozen=True)
class RuleCase:
    """One rule's pair of request bodies."""

    rule: str
    field: str
    """What the refusal's text must name."""
    breaks: dict[str, Any]
    keeps: dict[str, Any]
    unless: str | None
    """A place that a server may name to refuse ``keeps`` for another reason than the rule: it lacks a feature."""


def load_rule_cases(model: str) -> list[RuleCase]:
    """All cases as complete bodies for the served model called ``model``."""
    document = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    base = {**document["base"], "model": model}
    return [
        RuleCase(
            rule=case["rule"],
            field=case["field"],
            breaks={**base, **_expanded(case["breaks"])},
            keeps={**base, **_expanded(case["keeps"])},
            unless=case.get("unless"),
        )
        for case in document["cases"]
    ]


def _expanded(value: Any) -> Any:
    """``{repeat, times}`` becomes a long string and ``{items, times}`` a long list, at any depth."""
    if isinstance(value, list):
        return [_expanded(element) for element in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"repeat", "times"}:
        return value["repeat"] * value["times"]
    if value.keys() == {"items", "times"}:
        return [_expanded(value["items"])] * value["times"]
    return {key: _expanded(member) for key, member in value.items()}
