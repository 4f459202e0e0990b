"""The systematic cases: every request field at its bounds, outside them, null, missing, of wrong types.

Nothing about a field stands here: bounds, types and document lines are the contract's, ``contexts.yaml`` says in which
request a field is tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from conformance.bodies import Change, bases, steps
from conformance.case import Call, Case, Expectation, Kind, Level
from conformance.contract import Contract, Schema, lines_of, load_contract, readings_of
from conformance.derive_values import Trial, trials
from conformance.files import PACKAGE, read_yaml

_UNPROCESSABLE: Final = 422
_ABSENT: Final = object()


@dataclass(frozen=True)
class Field:
    """A request field and where it is tried."""

    name: str
    """Without positions, for ids: ``messages.content.text``."""
    place: str
    schema: Schema
    required: bool
    base: str
    beside: Mapping[str, Any]
    """Added to requests that must be accepted."""
    needs: frozenset[str]
    fixed: bool
    unless: str | None
    alone: bool

    @property
    def level(self) -> Level:
        """What only a reading says, a server of the document need not know."""
        return Level.MUST if lines_of(self.schema) else Level.SHOULD

    @property
    def sample(self) -> Any:
        """The base request's value, or the marker of none."""
        return _value_at(bases()[self.base], self.place)


def derived_cases() -> Iterator[Case]:
    """All of them, in the order of the contract."""
    contract = load_contract()
    for field in request_fields(contract):
        yield from _cases_of(contract, field)


def request_fields(contract: Contract) -> Iterator[Field]:
    """Every field of every component that requests are made of, those of open maps included."""
    contexts = read_yaml(PACKAGE / "contexts.yaml")
    for component, context in contexts["components"].items():
        schema = contract.schemas[component]
        for key, field in schema["properties"].items():
            place = f"{context['at']}.{key}".lstrip(".")
            yield _field(place, field, key in schema.get("required", ()), context, contexts["fields"], component)
            for inner, known in field.get("then", {}).get("properties", {}).items():
                yield _field(f"{place}.{inner}", known, False, context, contexts["fields"], component)


def _field(
    place: str, schema: Schema, required: bool, context: Schema, extras: Mapping[str, Schema], component: str
) -> Field:
    extra = extras.get(place, {})
    name = ".".join(step for step in steps(place) if isinstance(step, str))
    kind = component.removesuffix("Part").lower() if component.endswith("Part") and component != "TextPart" else ""
    return Field(
        name=name if not kind or name.endswith(("_url", "input_audio")) else f"{name}-{kind}",
        place=place,
        schema=schema,
        required=required,
        base=extra.get("base") or context["base"],
        beside=extra.get("with", {}),
        needs=frozenset([*context.get("needs", ()), *extra.get("needs", ())]),
        fixed=extra.get("fixed", False),
        unless=extra.get("unless"),
        alone=extra.get("alone", False),
    )


def _cases_of(contract: Contract, field: Field) -> Iterator[Case]:
    sample = field.sample
    for trial in trials(contract, field.schema, None if sample is _ABSENT else sample):
        if not (trial.accepted and field.fixed):
            yield _trial_case(contract, field, trial)
    if not field.required:
        yield from _null_cases(contract, field)
        return
    yield _refused(field, "null", "null", Change(field.base, {field.place: None}))
    yield _refused(field, "missing", "left out", Change(field.base, {}, (field.place,)))


def _trial_case(contract: Contract, field: Field, trial: Trial) -> Case:
    level = Level.SHOULD if trial.is_reading else field.level
    change = Change(field.base, {field.place: trial.value})
    if trial.accepted and not (trial.is_conditional and not _is_valid(contract, change)):
        return _accepted(field, trial.kind, trial.says, change.but(put=field.beside), level)
    return _refused(field, trial.kind, trial.says, change, level, trial.at)


def _null_cases(contract: Contract, field: Field) -> Iterator[Case]:
    """Whether null is taken is the contract's to say: conditions between fields may forbid it."""
    null = Change(field.base, {field.place: None, **field.beside})
    if not _is_valid(contract, null):
        yield _refused(field, "null", "null", null)
        return
    yield _accepted(field, "null", "null", null, field.level)
    if not field.alone:
        yield _absent_case(field)


def _is_valid(contract: Contract, change: Change) -> bool:
    return contract.validator("ChatCompletionRequest").is_valid(change.body("m"))


def _absent_case(field: Field) -> Case:
    """Null, the documented default and nothing at all mean the same."""
    put = {"seed": 7, **field.beside, field.place: None}
    change = Change(field.base, put)
    has_it = field.sample is not _ABSENT
    absent = Change(field.base, {key: value for key, value in put.items() if key != field.place or has_it})
    others = [absent.but(drop=(field.place,)) if has_it else absent]
    default = field.schema.get("default")
    if default is not None:
        others.append(change.but(put={field.place: default}))
    says = "null and leaving it out" if default is None else f"null, leaving it out and its default {default!r}"
    case = _accepted(field, "absent", f"{says} mean the same", change, field.level)
    expect = Expectation(kind=Kind.ANSWER, same_as=tuple(others))
    return _but(case, expect, case.needs | {"reproducible"})


def _accepted(field: Field, kind: str, says: str, change: Change, level: Level) -> Case:
    return _case(field, kind, says, change, Expectation(kind=Kind.ANSWER, unless=field.unless), level, field.needs)


def _refused(field: Field, kind: str, says: str, change: Change, level: Level | None = None, at: str = "") -> Case:
    expect = Expectation(kind=Kind.REFUSED, status=_UNPROCESSABLE, names=field.place + at)
    return _case(field, kind, says, change, expect, level or field.level, frozenset())


def _case(
    field: Field, kind: str, says: str, change: Change, expect: Expectation, level: Level, needs: frozenset[str]
) -> Case:
    verb = "accepted" if expect.kind is Kind.ANSWER else "refused"
    return Case(
        id=f"request.{field.name}.{kind}",
        theme="requests",
        says=f"{field.place}: {says}" + ("" if kind == "absent" else f" is {verb}"),
        lines=lines_of(field.schema),
        readings=readings_of(field.schema),
        level=level,
        needs=needs,
        call=Call(change=change),
        expect=expect,
    )


def _but(case: Case, expect: Expectation, needs: frozenset[str]) -> Case:
    return replace(case, expect=expect, needs=needs)


def _value_at(body: Any, place: str) -> Any:
    for step in steps(place):
        try:
            body = body[step]
        except (KeyError, IndexError, TypeError):
            return _ABSENT
    return body
