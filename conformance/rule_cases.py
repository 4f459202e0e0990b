"""The cases of ``cases/rules.yaml``: for every x-rule a request that breaks it and one that keeps it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from conformance.bodies import Change
from conformance.case import CHAT, Call, Case, Expectation, Kind, Level
from conformance.contract import Contract, lines_of, listed, load_contract, readings_of
from conformance.dialects import DIALECTS, VLLM
from conformance.files import CASES, SuiteError, read_yaml

_FILE: Final = CASES / "rules.yaml"


@dataclass(frozen=True)
class RuleCase:
    """One rule's pair of request bodies."""

    rule: str
    field: str
    """What the refusal's text must name."""
    breaks: dict[str, Any]
    keeps: dict[str, Any]
    unless: tuple[str, ...]
    """Places of which a server may name one to refuse ``keeps`` for a reason of its own: it lacks a feature."""


def load_rule_cases(model: str, dialect: str = VLLM) -> list[RuleCase]:
    """All pairs as complete bodies for the served model called ``model``."""
    return [
        RuleCase(
            rule=pair["rule"],
            field=pair["field"],
            breaks=Change(put=pair["breaks"]).body(model),
            keeps=Change(put=pair["keeps"]).body(model),
            unless=tuple(listed(pair.get("unless"))),
        )
        for pair in _pairs(load_contract(dialect))
    ]


def rule_pair_cases(dialect: str = VLLM) -> Iterator[Case]:
    """For each rule ``rules.<rule>.breaks`` and ``rules.<rule>.keeps``, and for some ``rules.<rule>.border``."""
    contract = load_contract(dialect)
    known = _rules(contract)
    for pair in _pairs(contract):
        rule, needs = known[pair["rule"]], frozenset(pair.get("needs", ()))
        refusal = Expectation(kind=Kind.REFUSED, status=contract.dialect.invalid, names=pair["field"])
        yield _case(pair, rule, "breaks", pair["breaks"], refusal)
        yield _case(pair, rule, "keeps", pair["keeps"], _answer(pair), needs)
        if "border" in pair:
            border = pair["border"]
            yield _case(pair, rule, "border", border["sends"], _answer(border), frozenset(border.get("needs", ())))


def _answer(entry: dict[str, Any]) -> Expectation:
    return Expectation(kind=Kind.ANSWER, unless=tuple(listed(entry.get("unless"))))


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


def _pairs(contract: Contract) -> list[dict[str, Any]]:
    """The pairs of the rules that the contract has. Raises ``SuiteError`` for a rule that no dialect has."""
    pairs: list[dict[str, Any]] = read_yaml(_FILE)["pairs"]
    known = {name for dialect in DIALECTS for name in _rules(load_contract(dialect))}
    for pair in pairs:
        if pair["rule"] not in known:
            raise SuiteError(f"{_FILE}: there is no rule {pair['rule']}")
    return [pair for pair in pairs if pair["rule"] in _rules(contract)]


def _rules(contract: Contract) -> dict[str, dict[str, Any]]:
    return {rule["id"]: rule for rule in contract.document["paths"][CHAT]["post"]["x-rules"]}
