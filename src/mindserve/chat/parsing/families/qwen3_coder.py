"""Qwen3-Coder: one tag for the call, one for the function, one for each parameter, values as plain text.

    <tool_call>
    <function=pick_city>
    <parameter=city>
    Oslo
    </parameter>
    </function>
    </tool_call>

The model often leaves the outer tag out. What type a value has is told by the tool's schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mindserve.chat.parsing.json_calls import json_text
from mindserve.chat.parsing.pieces import Call
from mindserve.chat.parsing.steps import DONE, MAX_NAME, Captures, Deliver, Family, Literals, Text
from mindserve.chat.parsing.toolbox import Toolbox
from mindserve.chat.parsing.value_types import json_type

_PYTHON_WORDS: Final = {"True": "true", "False": "false", "None": "null"}


def _call(captures: Captures, tools: Toolbox) -> list[Call] | None:
    (name,) = captures["name"]
    values: dict[str, str] = {}
    for key, value in zip(captures.get("key", []), captures.get("value", []), strict=True):
        values[key.strip()] = _json_of(value, name, key.strip(), tools)
    arguments = ", ".join(f"{json_text(key)}: {value}" for key, value in values.items())
    return [Call(name, f"{{{arguments}}}")]


def _json_of(value: str, tool: str, key: str, tools: Toolbox) -> str:
    """The JSON text of a value: its own where the schema wants something else than text and it is valid. Where the
    schema takes text too, what is of no type that it takes is text."""
    value = value.removeprefix("\n").removesuffix("\n")
    schema = tools.parameter(tool, key)
    if schema is None or _is_text(schema):
        return json_text(value)
    written = value.strip()
    written = _PYTHON_WORDS.get(written, written)
    try:
        decoded = msgspec.json.decode(written)
    except (msgspec.DecodeError, RecursionError):
        return json_text(value)
    types = tools.parameter_types(tool, key)
    return json_text(value) if "string" in types and json_type(decoded) not in types else written


def _is_text(schema: Mapping[str, Any]) -> bool:
    """Whether a value is never written as JSON, quotes and all."""
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(choices, list) and choices and all(isinstance(one, str) for one in choices):
        return True
    return bool(schema.get("type") in ("string", ["string"]))


QWEN3_CODER: Final = Family(
    name="qwen3_coder",
    marks={"<tool_call>": "function", "<function=": "bare_name"},
    table={
        "function": Literals(choices={"<function=": "name"}),
        "name": Text(name="name", ends={">": "parameters"}, is_tool=True, limit=MAX_NAME),
        "parameters": Literals(choices={"<parameter=": "key", "</function>": "close"}),
        "key": Text(name="key", ends={">": "value"}),
        "value": Text(name="value", ends={"</parameter>": "parameters"}),
        "close": Literals(choices={"</tool_call>": "deliver"}, at_end="deliver"),
        "bare_name": Text(name="name", ends={">": "bare_parameters"}, is_tool=True, limit=MAX_NAME),
        "bare_parameters": Literals(choices={"<parameter=": "bare_key", "</function>": "bare_deliver"}),
        "bare_key": Text(name="key", ends={">": "bare_value"}),
        "bare_value": Text(name="value", ends={"</parameter>": "bare_parameters"}),
        "deliver": Deliver(make=_call),
        "bare_deliver": Deliver(make=_call, next="bare_close"),
        "bare_close": Literals(choices={"</tool_call>": DONE}, otherwise=DONE, at_end=DONE),
    },
)
