"""Calls that models write as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from mindserve.chat.parsing.pieces import Call
from mindserve.chat.parsing.toolbox import Toolbox


class _Written(msgspec.Struct):
    """An object with a name and arguments; ``parameters`` is Llama's word for them."""

    name: str
    arguments: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    parameters: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def named_call(text: str, tools: Toolbox) -> Call | None:
    """The call in ``{"name": ..., "arguments": {...}}``; None when it is no such object or names no offered tool."""
    try:
        written = msgspec.json.decode(text, type=_Written)
    except (msgspec.DecodeError, RecursionError):
        return None
    raw = written.parameters if isinstance(written.arguments, msgspec.UnsetType) else written.arguments
    return call_of(written.name, "" if isinstance(raw, msgspec.UnsetType) else bytes(raw).decode(), tools)


def call_of(name: str, arguments: str, tools: Toolbox) -> Call | None:
    """``arguments`` is JSON text: an object, a text that holds one, or nothing (``""``, null), which stands for {}."""
    if name not in tools:
        return None
    text = arguments_text(arguments)
    return None if text is None else Call(name, text)


def arguments_text(written: str) -> str | None:
    """The JSON text of the object that ``written`` holds, as it was written; None when there is none."""
    try:
        value = _decoded(written) if written.strip() else None
        if isinstance(value, str):
            written = value.strip()
            value = _decoded(written) if written else None
    except (ValueError, RecursionError):
        return None
    if value is None:
        return "{}"
    return written.strip() if isinstance(value, dict) else None


def _decoded(text: str) -> Any:
    """Raises ``ValueError`` for what is no JSON."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        if "out of range" not in str(error):
            raise
    # JSON knows no largest number: 1e999 is for the client's parser to judge
    return json.loads(text, parse_int=str, parse_float=str)


def json_text(value: Any) -> str:
    """JSON with other alphabets as they are. Raises ``ValueError`` or ``TypeError`` for what JSON has no words for."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def named_calls(captures: Mapping[str, list[str]], tools: Toolbox) -> list[Call] | None:
    """All that were kept as ``call``, or ``None`` where one is no call."""
    texts = captures["call"]
    calls = [call for text in texts if (call := named_call(text, tools)) is not None]
    return calls if len(calls) == len(texts) else None
