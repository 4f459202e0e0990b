"""The systematic cases: every request field at its bounds, outside them, null, missing, of wrong types.

Nothing about a field stands here: bounds, types and document lines are the contract's, ``contexts.yaml`` says in which
request a field is tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from conformance.bodies import Change, bases, steps
from conformance.case import Call, Case, Expectation, Kind, Level
from conformance.contract import Contract, Schema, lines_of, listed, load_contract, readings_of
from conformance.derive_values import Trial, trials
from conformance.dialects import VLLM
from conformance.files import PACKAGE, read_yaml

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
    shows: Mapping[str, Any]
    """Added where null, absent and the default are compared."""
    needs: frozenset[str]
    feature: frozenset[str]
    """Capabilities for values that ask for something."""
    neutral: tuple[Any, ...]
    """Values that say no more than leaving the field out; null is always one."""
    fixed: bool
    unless: tuple[str, ...]
    alone: bool
    reading: Mapping[str, str]
    """Kind of case -> the reading on which alone it stands; "*" is all kinds."""

    def level(self, reading: str | None) -> Level:
        """What only a reading says, a server of the document need not know."""
        return Level.MUST if lines_of(self.schema) and reading is None else Level.SHOULD

    def is_neutral(self, value: Any) -> bool:
        return value is None or any(type(value) is type(one) and value == one for one in self.neutral)

    def needs_for(self, value: Any) -> frozenset[str]:
        """What a server must be able to do to take the value. A neutral one is no wish for the feature."""
        return self.needs if self.is_neutral(value) else self.needs | self.feature

    @property
    def sample(self) -> Any:
        """The base request's value, or the marker of none."""
        return _value_at(bases()[self.base], self.place)


def derived_cases(dialect: str = VLLM) -> Iterator[Case]:
    """All of them, in the order of the contract."""
    contract = load_contract(dialect)
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
        shows=extra.get("shows", {}),
        needs=frozenset([*context.get("needs", ()), *extra.get("needs", ())]),
        feature=frozenset(extra.get("feature", ())),
        neutral=tuple(extra.get("neutral", ())),
        fixed=extra.get("fixed", False),
        unless=tuple(listed(extra.get("unless"))),
        alone=extra.get("alone", False),
        reading=extra.get("reading", {}),
    )


def _cases_of(contract: Contract, field: Field) -> Iterator[Case]:
    sample = field.sample
    for trial in trials(contract, field.schema, None if sample is _ABSENT else sample):
        if not (trial.accepted and field.fixed):
            yield _trial_case(contract, field, trial)
    if not field.required:
        yield from _null_cases(contract, field)
        return
    yield _case(field, "null", "null", Change(field.base, {field.place: None}), _refusal(contract, field))
    yield _case(field, "missing", "left out", Change(field.base, {}, (field.place,)), _refusal(contract, field))


def _trial_case(contract: Contract, field: Field, trial: Trial) -> Case:
    change = Change(field.base, {field.place: trial.value})
    if trial.accepted and not (trial.is_conditional and not _is_valid(contract, change)):
        return _accepted(field, trial.kind, trial.says, change.but(put=field.beside), trial.reading)
    return _case(field, trial.kind, trial.says, change, _refusal(contract, field, trial.at), trial.reading)


def _null_cases(contract: Contract, field: Field) -> Iterator[Case]:
    """Whether null is taken is the contract's to say: conditions between fields may forbid it."""
    null = Change(field.base, {field.place: None, **field.beside})
    if not _is_valid(contract, null):
        yield _case(field, "null", "null", null, _refusal(contract, field))
        return
    yield _accepted(field, "null", "null", null)
    if not field.alone:
        yield _absent_case(field)


def _is_valid(contract: Contract, change: Change) -> bool:
    return contract.validator("ChatCompletionRequest").is_valid(change.body("m"))


def _absent_case(field: Field) -> Case:
    """Null, the documented default and nothing at all mean the same."""
    put = {"seed": 7, **field.beside, **field.shows, field.place: None}
    change = Change(field.base, put)
    has_it = field.sample is not _ABSENT
    absent = Change(field.base, {key: value for key, value in put.items() if key != field.place or has_it})
    others = [absent.but(drop=(field.place,)) if has_it else absent]
    default = field.schema.get("default")
    if default is not None:
        others.append(change.but(put={field.place: default}))
    says = "null and leaving it out" if default is None else f"null, leaving it out and its default {default!r}"
    # A tool is shown to the model as it was written (C8), so leaving a default out may change the prompt.
    is_shown = field.place.startswith("tools")
    expect = Expectation(kind=Kind.ANSWER, same_as=() if is_shown else tuple(others))
    needs = field.needs_for(default) | {"reproducible"}
    return _case(field, "absent", f"{says} mean the same", change, expect, needs=needs)


def _accepted(field: Field, kind: str, says: str, change: Change, reading: str | None = None) -> Case:
    value = change.put[field.place]
    expect = Expectation(kind=Kind.ANSWER, unless=() if field.is_neutral(value) else field.unless)
    return _case(field, kind, says, change, expect, reading, field.needs_for(value))


def _refusal(contract: Contract, field: Field, at: str = "") -> Expectation:
    return Expectation(kind=Kind.REFUSED, status=contract.dialect.invalid, names=field.place + at)


def _case(
    field: Field,
    kind: str,
    says: str,
    change: Change,
    expect: Expectation,
    reading: str | None = None,
    needs: frozenset[str] = frozenset(),
) -> Case:
    verb = "accepted" if expect.kind is Kind.ANSWER else "refused"
    reading = reading or field.reading.get(kind) or field.reading.get("*")
    readings = dict.fromkeys([*([reading] if reading else ()), *readings_of(field.schema)])
    return Case(
        id=f"request.{field.name}.{kind}",
        theme="requests",
        says=f"{field.place}: {says}" + ("" if kind == "absent" else f" is {verb}"),
        lines=lines_of(field.schema),
        readings=tuple(readings),
        level=field.level(reading),
        needs=needs,
        call=Call(change=change),
        expect=expect,
    )


def _value_at(body: Any, place: str) -> Any:
    for step in steps(place):
        try:
            body = body[step]
        except (KeyError, IndexError, TypeError):
            return _ABSENT
    return body
