"""Shapes: bodies against the contract's schemas, the order of keys, compact JSON."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any, Final

from conformance.contract import Contract, Schema

_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
MAX_TEXT: Final = 200
_DAY_S: Final = 86_400
_FIRST_YEAR_S: Final = 1_577_836_800  # 2020-01-01: no server of this API is older


def schema_faults(contract: Contract, component: str, value: Any) -> Iterator[str]:
    """What a component's schema says against a value."""
    try:
        errors = list(contract.validator(component).iter_errors(value))
    except ValueError as reason:  # the validator has a limit of its own
        yield f"it cannot be read: {reason}"
        return
    for error in errors:
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
        yield f"{place.lstrip('.') or component}: {shortened(error.message)}"


def order_faults(contract: Contract, schema: Schema, value: Any, place: str = "") -> Iterator[str]:
    """Keys that do not come in the order of the contract's tables (S2, S3, S6), at any depth."""
    schema = contract.resolve(schema)
    options = [contract.resolve(one) for one in schema.get("anyOf", ())]
    known: Schema = schema.get("properties") or next((one["properties"] for one in options if "properties" in one), {})
    if isinstance(value, dict):
        named = [key for key in value if key in known]
        expected = [key for key in known if key in value]
        if named != expected:
            yield f"{place or 'the body'} has the keys {', '.join(named)}; their order is {', '.join(expected)}"
        for key in named:
            yield from order_faults(contract, known[key], value[key], f"{place}.{key}".lstrip("."))
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for number, item in enumerate(value):
            yield from order_faults(contract, schema["items"], item, f"{place}[{number}]")


def unknown_keys(contract: Contract, schema: Schema, value: Any, place: str = "") -> Iterator[str]:
    """Keys that the contract's tables do not have (D1), at any depth."""
    schema = contract.resolve(schema)
    options = [contract.resolve(one) for one in schema.get("anyOf", ())]
    known: Schema = schema.get("properties") or next((one["properties"] for one in options if "properties" in one), {})
    if isinstance(value, dict):
        for key, member in value.items():
            if key in known:
                yield from unknown_keys(contract, known[key], member, f"{place}.{key}".lstrip("."))
            else:
                yield f"{place or 'the body'} has the key {shortened(key)}, which is in no table"
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for number, item in enumerate(value):
            yield from unknown_keys(contract, schema["items"], item, f"{place}[{number}]")


def created_fault(created: float) -> Iterator[str]:
    """What is no time in seconds, or lies in the future."""
    if not _FIRST_YEAR_S <= created <= time.time() + _DAY_S:
        yield f"created is {created}; now it is {time.time():.0f}"


def blank_fault(text: str) -> Iterator[str]:
    """White space between the tokens of a JSON text (S5)."""
    if (found := re.search(r"\s", _STRING.sub('""', text))) is not None:
        yield f"there is white space between its tokens ({found.group()!r})"


def names_place(text: str, place: str) -> bool:
    """Whether a text has the place's exact name. ``n`` is not named by every word with an n in it."""
    return re.search(rf"(?<![\w.]){re.escape(place)}(?!\w)", text) is not None


def names_field(text: str, place: str) -> bool:
    """Whether a text names the place by its first or its last key, if not exactly."""
    first, last = re.match(r"\w*", place), re.search(r"(\w+)[\[\]\d]*$", place)
    keys = {found.group(found.lastindex or 0) for found in (first, last) if found is not None}
    return any(re.search(rf"(?<!\w){re.escape(key)}(?!\w)", text) for key in keys if key)


def shortened(text: str, limit: int = MAX_TEXT) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
