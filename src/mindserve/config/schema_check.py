"""Checking values against the schema, through the models generated from it, without stopping at the first fault."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from mindserve.config._generated import Config
from mindserve.config.faults import Fault
from mindserve.errors import field_path, shown


class Checked(msgspec.Struct, frozen=True):
    """A config and what was wrong with it. Where a value was at fault its default stands."""

    config: Config
    faults: tuple[Fault, ...]


def check_schema(raw: dict[str, object]) -> Checked:
    """Check all values; take each faulty one out and check again, since a faulty list hides the faults in its items."""
    rest: Any = copy.deepcopy(raw)
    faults: dict[str, Fault] = {}
    while True:
        try:
            config = Config.model_validate(rest)
        except ValidationError as error:
            details = error.errors(include_url=False)
            for detail in details:
                fault = _fault(detail)
                faults.setdefault(fault.path, fault)
            _take_out(rest, details)
        else:
            return Checked(config, tuple(sorted(faults.values(), key=lambda fault: fault.path)))


def _take_out(rest: Any, details: Sequence[ErrorDetails]) -> None:
    for detail in details:
        location = detail["loc"]
        if detail["type"] == "too_long":
            del _at(rest, location)[detail["ctx"]["max_length"] :]
        else:  # for a missing key the object that lacks it goes, for an item of a list the whole list
            _remove(rest, location[:-1] if detail["type"] == "missing" else location)


def _remove(rest: Any, location: Sequence[str | int]) -> None:
    while location and isinstance(location[-1], int):
        location = location[:-1]
    try:
        del _at(rest, location[:-1])[location[-1]]
    except (KeyError, IndexError):  # another fault has already taken it out
        return


def _at(rest: Any, location: Sequence[str | int]) -> Any:
    for part in location:
        rest = rest[part]
    return rest


def _fault(detail: ErrorDetails) -> Fault:
    return Fault(field_path(detail["loc"]), _problem(detail))


_TYPES: Final = {
    "int_type": "an integer",
    "string_type": "a string",
    "bool_type": "true or false",
    "list_type": "a list",
    "model_type": "an object",
    "dict_type": "an object",
}


def _problem(detail: ErrorDetails) -> str:
    """The fault in our words; pydantic's stand in for kinds that the schema does not use today."""
    context: dict[str, Any] = detail.get("ctx") or {}
    value = shown(detail["input"])
    if detail["type"] in _TYPES:
        if detail["input"] is None:
            return f"null is not {_TYPES[detail['type']]}: leave the key out for the default"
        return f"{value} is not {_TYPES[detail['type']]}"
    match detail["type"]:
        case "missing":
            return "is mandatory"
        case "greater_than_equal":
            return f"{value} is below the minimum {context['ge']}"
        case "less_than_equal":
            return f"{value} is above the maximum {context['le']}"
        case "multiple_of":
            return f"{value} is not a multiple of {context['multiple_of']}"
        case "literal_error":
            choices = context["expected"].replace("'", '"')
            return f"{value} is not {'one of ' if ' or ' in choices else ''}{choices}"
        case "string_too_short":
            return f"{value} has {len(detail['input'])} characters, the minimum is {context['min_length']}"
        case "string_too_long":
            return f"{value} has {len(detail['input'])} characters, the maximum is {context['max_length']}"
        case "string_pattern_mismatch":
            return f"{value} does not match {context['pattern']}"
        case "string_unicode":
            return f"{value} has half a character in it (a lone surrogate)"
        case "too_long":
            return f"has {len(detail['input'])} items, the maximum is {context['max_length']}"
    return f"{detail['msg']} (received {value})"
