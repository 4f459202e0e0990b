"""Values to try for a field, from its schema: at its bounds, just outside them, and of every other type."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from conformance.contract import Contract, Schema

_SAMPLES: Final[dict[str, Any]] = {
    "string": "1",
    "boolean": True,
    "integer": 1,
    "float": 1.5,
    "array": [],
    "object": {},
}
"""A value of each type."""
_LARGE: Final = 1e300
"""Where a number has no upper bound."""


@dataclass(frozen=True)
class Trial:
    """A value, and whether a server takes it."""

    kind: str
    """Part of the case's id."""
    says: str
    value: Any
    accepted: bool
    reading: str | None = None
    """The reading on which alone it stands: the document does not say it."""
    is_conditional: bool = False
    """Whether it is taken is the whole request's affair: a condition between fields may forbid it."""
    at: str = ""
    """Where a refusal points, below the field."""


def alternatives(contract: Contract, schema: Schema) -> list[Schema]:
    """The single-typed schemas that a field's schema allows; null is one of them."""
    schema = contract.resolve(schema)
    if "anyOf" in schema or "oneOf" in schema:
        members = schema.get("anyOf") or schema["oneOf"]
        return [one for member in members for one in alternatives(contract, member)]
    kinds = schema.get("type", [])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return [{**schema, "type": kind} for kind in kinds]


def trials(contract: Contract, schema: Schema, sample: Any) -> Iterator[Trial]:
    """What to try. ``sample`` is the value that the base request has, None if it has none."""
    options = alternatives(contract, schema)
    for option in options:
        yield from _within_type(contract, option, sample)
    yield from _other_types({option["type"] for option in options})


def _within_type(contract: Contract, option: Schema, sample: Any) -> Iterator[Trial]:
    values = option.get("enum", [option["const"]] if "const" in option else None)
    if values is not None:
        for value in values:
            if value is not None:
                yield Trial(f"is-{value}".lower().replace(" ", "-"), f"the value {value!r}", value, True)
        if option["type"] == "string":
            yield Trial("not-listed", "a value that is not listed", "no_such_value", False)
        return
    match option["type"]:
        case "boolean":
            yield Trial("is-true", "true", True, True)
            yield Trial("is-false", "false", False, True)
        case "integer" | "number":
            yield from _numbers(option)
        case "string":
            yield from _strings(option)
        case "array":
            yield from _arrays(contract, option, sample)
        case "object" if "maxProperties" in option:
            yield from _maps(contract, option)


def _numbers(option: Schema) -> Iterator[Trial]:
    step = (lambda value, way: value + way) if option["type"] == "integer" else _next_float
    if "minimum" in option:
        low = option["minimum"]
        yield Trial("at-minimum", f"its minimum, {low}", low, True)
        yield Trial("below-minimum", "just below its minimum", step(low, -1), False)
    if "exclusiveMinimum" in option:
        low = option["exclusiveMinimum"]
        yield Trial("above-bound", f"just above {low}, which is excluded", step(low, 1), True)
        yield Trial("at-bound", f"{low}, which is excluded", low, False)
    if "maximum" in option:
        high = option["maximum"]
        yield Trial("at-maximum", f"its maximum, {high}", high, True)
        yield Trial("above-maximum", "just above its maximum", step(high, 1), False)
    elif option["type"] == "number":
        yield Trial("very-large", "a very large number: there is no upper bound", _LARGE, True)
    inside = max(1, option.get("minimum", 1))
    if option["type"] == "integer":
        yield Trial("integral-float", "an integer written with a decimal point", float(inside), True, "R3")
    else:
        yield Trial("integer", "a number without a decimal point", inside, True, "R3")


def _next_float(value: float, way: int) -> float:
    return math.nextafter(value, way * math.inf)


def _strings(option: Schema) -> Iterator[Trial]:
    shortest, longest = option.get("minLength", 0), option.get("maxLength")
    if shortest:
        yield Trial("shortest", "one character", "a", True)
        yield Trial("too-short", "no characters", "", False)
    if longest is not None:
        yield Trial("longest", f"{longest} characters", {"repeat": "a", "times": longest}, True)
        yield Trial("too-long", f"{longest + 1} characters", {"repeat": "a", "times": longest + 1}, False)


def _arrays(contract: Contract, option: Schema, sample: Any) -> Iterator[Trial]:
    items = option.get("items", {})
    item = sample[0] if isinstance(sample, list) and sample else 1 if "not" in items else "a"
    if option.get("minItems"):
        yield Trial("too-few", "no items", [], False)
    else:
        yield Trial("no-items", "an empty list", [], True, is_conditional=True)
    if (most := option.get("maxItems")) is not None:
        yield Trial("most-items", f"{most} items", {"items": item, "times": most}, True, reading="C24")
        yield Trial("too-many", f"{most + 1} items", {"items": item, "times": most + 1}, False, reading="C24")
    if "$ref" in items or "type" in items:
        known = {one["type"] for one in alternatives(contract, items)}
        for trial in _other_types(known | {"null"} if "null" in known else known):
            yield Trial(f"item-{trial.kind}", f"an item that is {trial.says}", [trial.value], False, at="[0]")
        yield Trial("item-null", "an item that is null", [None], False, at="[0]")
    if items.get("minLength"):
        yield Trial("item-too-short", "an item without characters", [""], False, at="[0]")


def _maps(contract: Contract, option: Schema) -> Iterator[Trial]:
    """Of maps whose keys are the client's: how many entries there may be, and of what kind."""
    entry, most = option["additionalProperties"], option["maxProperties"]
    options = alternatives(contract, entry)
    value = _SAMPLES[options[0]["type"] if options[0]["type"] != "number" else "float"]
    yield Trial("no-entries", "an empty object", {}, True)
    for kind, number, accepted in (("most-entries", most, True), ("too-many-entries", most + 1, False)):
        yield Trial(kind, f"{number} entries", {str(key): value for key in range(number)}, accepted)
    if "propertyNames" in option:
        yield Trial("bad-key", "a key that is none", {"a": value}, False, at=".a")
    inner = [trial for one in options for trial in _within_type(contract, one, None)]
    for trial in (*inner, *_other_types({one["type"] for one in options})):
        at = "" if trial.accepted else ".0"
        says = f"an entry that is {trial.says}"
        yield Trial(f"entry-{trial.kind}", says, {"0": trial.value}, trial.accepted, trial.reading, at=at)
    yield Trial("entry-null", "an entry that is null", {"0": None}, False, at=".0")


def _other_types(known: set[str]) -> Iterator[Trial]:
    """A value of each type that the field does not have. An integer is a number; a float is one too."""
    taken = known | ({"integer", "float"} if "number" in known else set())
    for kind, value in _SAMPLES.items():
        if kind not in taken:
            yield Trial(f"as-{kind}", f"{'an' if kind[0] in 'aio' else 'a'} {kind}", value, False)
