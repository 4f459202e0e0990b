"""Shapes: bodies against the contract's schemas, the order of keys, compact JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from conformance.contract import Contract, Schema

_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
MAX_TEXT: Final = 200


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


def blank_fault(text: str) -> Iterator[str]:
    """White space between the tokens of a JSON text (S5)."""
    if (found := re.search(r"\s", _STRING.sub('""', text))) is not None:
        yield f"there is white space between its tokens ({found.group()!r})"


def shortened(text: str, limit: int = MAX_TEXT) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
