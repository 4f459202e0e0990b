"""A decoder's complaint about a request body, in the contract's words: the field, what is expected, what came."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from mindserve.api.contract import chat_request_expectations
from mindserve.api.expectation import MISSING, Path, value_at
from mindserve.api.trace import find_unrepresentable, trace
from mindserve.errors import RequestRefused, field_path, shown

_AT: Final = re.compile(r" - at `\$(?P<path>.*)`$")
_STEP: Final = re.compile(r"\.(?P<key>[^.\[]+)|\[(?P<index>\d+)\]")
_MISSING_FIELD: Final = re.compile(r"Object missing required field `(?P<name>[^`]+)`")
_KEY_CHARACTERS: Final = 64
"""Of a key in a path; free-form maps may hold longer ones."""
_HALF_PAIR: Final = re.compile(
    rb"(?<!\\)(?:\\\\)*(?P<half>\\u[dD][89abAB][0-9a-fA-F]{2})(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)


def explain(error: msgspec.DecodeError, body: bytes) -> RequestRefused:
    """``error`` was raised by a typed decoder on ``body``. Broken JSON behind the place it names comes first."""
    if not isinstance(error, msgspec.ValidationError):
        return _not_json(error, body)
    path, reason = _path_of(error), _AT.sub("", str(error))
    missing = _MISSING_FIELD.match(reason)
    try:
        seen = trace(body.lstrip(), path)
    except msgspec.DecodeError as broken:
        return _not_json(broken, body)
    if missing:
        field = field_path((*path, missing["name"]))
        return RequestRefused(f"{field} is required", field=field)
    if not path:
        return RequestRefused(f"the request body must be a JSON object, got {shown(seen)}")
    return _wrong_value(path, reason, seen, body)


def _wrong_value(path: Path, reason: str, seen: object, body: bytes) -> RequestRefused:
    expected, value = chat_request_expectations().at(path, seen), value_at(seen, path)
    if reason.endswith("out of range") and not (expected or "").startswith("an integer"):
        path = find_unrepresentable(body, path)
        expected, value = "a number that 64 bits can hold", value_at(trace(body, path), path)
    field = field_path(tuple(step if isinstance(step, int) else step[:_KEY_CHARACTERS] for step in path))
    if expected is None or value is MISSING:
        return RequestRefused(f"{field}: {reason}", field=field)
    return RequestRefused(f"{field} must be {expected}, got {shown(value)}", field=field)


def _path_of(error: msgspec.ValidationError) -> Path:
    at = _AT.search(str(error))
    steps = _STEP.finditer(at["path"].partition("[...]")[0]) if at else ()  # [...]: a key of a free-form map
    return tuple(int(step["index"]) if step["index"] else step["key"] for step in steps)


def _not_json(error: msgspec.DecodeError, body: bytes) -> RequestRefused:
    fault = str(error).removeprefix("JSON is malformed: ")
    if fault == "Input data was truncated":
        # The decoder's words for half of a surrogate pair too.
        half = _HALF_PAIR.search(body)
        fault = f"half of a surrogate pair (byte {half.start('half')})" if half else "it ends too early"
    return RequestRefused(f"the request body is not valid JSON: {fault}")
