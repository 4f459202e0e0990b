"""A decoder's complaint about a request body, in the contract's words: the field, what is expected, what came."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from mindserve.api.expectation import MISSING, Path, value_at
from mindserve.api.request_model import RequestModel
from mindserve.api.trace import find_refused, find_unrepresentable, trace
from mindserve.errors import RequestRefused, field_path, shown

_AT: Final = re.compile(r" - at `\$(?P<path>.*)`$")
_STEP: Final = re.compile(r"\.(?P<key>[^.\[]+)|\[(?P<index>\d+)\]")
_MISSING_FIELD: Final = re.compile(r"Object missing required field `(?P<name>[^`]+)`")
_KEY_CHARACTERS: Final = 64
"""Of a key in a path; free-form maps may hold longer ones."""
_HALF_PAIR: Final = re.compile(
    rb"(?<!\\)(?:\\\\)*(?P<half>\\u[dD][89abAB][0-9a-fA-F]{2})(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)


def explain(error: msgspec.DecodeError, body: bytes, requests: RequestModel) -> RequestRefused:
    """``error`` was raised by a typed decoder of ``requests`` on ``body``.

    Broken JSON behind the place it names comes first.
    """
    if not isinstance(error, msgspec.ValidationError):
        return _not_json(error, body)
    path, reason = _path_of(error, body, requests), _AT.sub("", str(error))
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
    return _wrong_value(path, reason, requests.expectations.at(path, seen), seen, body)


def _wrong_value(path: Path, reason: str, expected: str | None, seen: object, body: bytes) -> RequestRefused:
    value = value_at(seen, path)
    if reason.endswith("out of range") and not (expected or "").startswith("an integer"):
        path = find_unrepresentable(body, path)
        expected, value = "a number that 64 bits can hold", value_at(trace(body, path), path)
    field = field_path(tuple(step if isinstance(step, int) else step[:_KEY_CHARACTERS] for step in path))
    if expected is None or value is MISSING:
        return RequestRefused(f"{field}: {reason}", field=field)
    return RequestRefused(f"{field} must be {expected}, got {shown(value)}", field=field)


def _path_of(error: msgspec.ValidationError, body: bytes, requests: RequestModel) -> Path:
    at = _AT.search(str(error))
    before, mark, _ = (at["path"] if at else "").partition("[...]")  # a key of a map, of which the decoder says no more
    steps = (int(step["index"]) if step["index"] else step["key"] for step in _STEP.finditer(before))
    path: Path = tuple(steps)
    values = requests.map_values.get(str(path[0])) if mark and len(path) == 1 else None
    key = find_refused(body, str(path[0]), values) if values is not None else None
    return path if key is None else (*path, key)


def _not_json(error: msgspec.DecodeError, body: bytes) -> RequestRefused:
    fault = str(error).removeprefix("JSON is malformed: ")
    if fault == "Input data was truncated":
        # The decoder's words for half of a surrogate pair too.
        half = _HALF_PAIR.search(body)
        fault = f"half of a surrogate pair (byte {half.start('half')})" if half else "it ends too early"
    return RequestRefused(f"the request body is not valid JSON: {fault}")
