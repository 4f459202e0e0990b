"""The cases of ``cases/rules.yaml``: for every x-rule a request that breaks it and one that keeps it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from conformance.bodies import Change
from conformance.case import Call, Case, Expectation, Kind, Level
from conformance.contract import lines_of, load_contract, readings_of
from conformance.files import CASES, read_yaml

_FILE: Final = CASES / "rules.yaml"
_UNPROCESSABLE: Final = 422


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
    """All pairs as complete bodies for the served model called ``model``."""
    return [
        RuleCase(
            rule=pair["rule"],
            field=pair["field"],
            breaks=Change(put=pair["breaks"]).body(model),
            keeps=Change(put=pair["keeps"]).body(model),
            unless=pair.get("unless"),
        )
        for pair in _pairs()
    ]


def rule_pair_cases() -> Iterator[Case]:
    """For each rule ``rules.<rule>.breaks`` and ``rules.<rule>.keeps``, and for some ``rules.<rule>.border``."""
    rules = load_contract().document["paths"]["/v1/chat/completions"]["post"]["x-rules"]
    known = {rule["id"]: rule for rule in rules}
    for pair in _pairs():
        rule, needs = known[pair["rule"]], frozenset(pair.get("needs", ()))
        refusal = Expectation(kind=Kind.REFUSED, status=_UNPROCESSABLE, names=pair["field"])
        yield _case(pair, rule, "breaks", pair["breaks"], refusal)
        yield _case(pair, rule, "keeps", pair["keeps"], _answer(pair), needs)
        if "border" in pair:
            border = pair["border"]
            yield _case(pair, rule, "border", border["sends"], _answer(border), frozenset(border.get("needs", ())))


def _answer(entry: dict[str, Any]) -> Expectation:
    return Expectation(kind=Kind.ANSWER, unless=entry.get("unless"))


def _case(
    pair: dict[str, Any],
    rule: dict[str, Any],
    kind: str,
    sends: dict[str, Any],
    expect: Expectation,
    needs: frozenset[str] = frozenset(),
) -> Case:
    verb = {"breaks": "breaks", "keeps": "keeps", "border": "just keeps"}[kind]
    return Case(
        id=f"rules.{pair['rule']}.{kind}",
        theme="rules",
        says=f"A request that {verb} the rule {pair['rule']}",
        lines=lines_of(rule),
        readings=readings_of(rule),
        level=Level(pair.get("level", "MUST")),
        needs=needs,
        call=Call(change=Change(put=sends)),
        expect=expect,
    )


def _pairs() -> list[dict[str, Any]]:
    pairs: list[dict[str, Any]] = read_yaml(_FILE)["pairs"]
    return pairs
