"""The value at a place of a JSON text, and what lies on the way there; nothing else of the text is built.

For error texts: they show one value of a body that may hold millions, and they show numbers as the client wrote them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mindserve.api.expectation import MISSING, Path
from mindserve.errors import NumberText

_BESIDE_BYTES = 64
"""Strings of up to this length that lie beside the path are kept: ``type`` and ``role`` tell unions apart."""

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


def trace(text: bytes | msgspec.Raw, path: Path) -> object:
    """The JSON value of ``text``, in which ``value_at(..., path)`` is the value there, or ``MISSING``.

    Of other members only short strings are kept, other items are ``MISSING``. Raises ``msgspec.DecodeError`` when the
    text is not JSON.
    """
    if not path:
        return _shallow(text)
    step, *rest = path
    try:
        if isinstance(step, int):
            items = _ITEMS.decode(text)
            return [*[MISSING] * step, trace(items[step], tuple(rest))] if step < len(items) else []
        members = _MEMBERS.decode(text)
    except msgspec.ValidationError:  # another kind of value
        return _shallow(text)
    seen: dict[str, object] = {
        name: _shallow(member)
        for name, member in members.items()
        if len(memoryview(member)) <= _BESIDE_BYTES and _first(member) == b'"'
    }
    return seen | ({step: trace(members[step], tuple(rest))} if step in members else {})


def find_unrepresentable(text: bytes, path: Path) -> Path:
    """``path`` of ``text``, or the place below it of a number that no decoder can hold (1e400)."""
    place: bytes | msgspec.Raw = text
    for step in path:
        place = _ITEMS.decode(place)[step] if isinstance(step, int) else _MEMBERS.decode(place)[step]
    return (*path, *_steps_to_unrepresentable(place))


def find_refused(text: bytes, field: str, values: msgspec.json.Decoder[Any]) -> str | None:
    """The first key of the map at ``field`` whose value ``values`` does not take."""
    for key, value in _MEMBERS.decode(_MEMBERS.decode(text)[field]).items():
        try:
            values.decode(value)
        except msgspec.DecodeError:
            return key
    return None


def _steps_to_unrepresentable(text: bytes | msgspec.Raw) -> Path:
    first = _first(text)
    inner: list[tuple[str | int, msgspec.Raw]] = []
    if first == b"{":
        inner += _MEMBERS.decode(text).items()
    elif first == b"[":
        inner += enumerate(_ITEMS.decode(text))
    for step, value in inner:
        try:
            msgspec.json.decode(value)
        except msgspec.ValidationError:
            return (step, *_steps_to_unrepresentable(value))
    return ()


def _shallow(text: bytes | msgspec.Raw) -> object:
    first = _first(text)
    if first == b"{":
        return {}
    if first == b"[":
        return _ITEMS.decode(text)
    if first in (b'"', b"t", b"f", b"n"):
        value: object = msgspec.json.decode(text)
        return value
    return NumberText(bytes(memoryview(text)).decode())


def _first(text: bytes | msgspec.Raw) -> bytes:
    """One byte, which tells the kind of a value."""
    return bytes(memoryview(text)[:1])
