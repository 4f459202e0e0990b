"""The messages of a request as chat templates take them.

Fields that no template reads are left out: a template may react to any key. Roles stay as they are, but for
``developer``, which becomes ``system`` for a template that does not know it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from mindserve.errors import RequestRefused

_TEXT_FIELDS = ("name", "tool_call_id", "reasoning_content")


def to_conversation(
    messages: list[dict[str, Any]], *, knows_developer: bool, arguments_as_text: bool
) -> list[dict[str, Any]]:
    """Raises ``RequestRefused`` naming the part or the argument that cannot be taken."""
    return [
        _to_message(message, f"messages[{index}]", knows_developer=knows_developer, arguments_as_text=arguments_as_text)
        for index, message in enumerate(messages)
    ]


def _to_message(
    message: Mapping[str, Any], path: str, *, knows_developer: bool, arguments_as_text: bool
) -> dict[str, Any]:
    role = message["role"]
    if role == "developer" and not knows_developer:
        role = "system"
    result = {"role": role, "content": _to_text(message.get("content"), f"{path}.content")}
    result |= {field: message[field] for field in _TEXT_FIELDS if isinstance(message.get(field), str)}
    reasoning = result.get("reasoning_content", message.get("reasoning"))
    if isinstance(reasoning, str):
        # Both names are in use, and templates of one family read a third.
        result |= {"reasoning_content": reasoning, "thinking": reasoning}
    if message.get("tool_calls"):
        result["tool_calls"] = [
            _to_tool_call(call, f"{path}.tool_calls[{index}]", arguments_as_text=arguments_as_text)
            for index, call in enumerate(message["tool_calls"])
        ]
    return result


def _to_text(content: Any, path: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "".join(_to_part_text(part, f"{path}[{index}]") for index, part in enumerate(content))


def _to_part_text(part: Mapping[str, Any], path: str) -> str:
    if part.get("type") != "text":
        raise RequestRefused(f"{path}.type: this model takes text only, not {part.get('type')!r}", field=f"{path}.type")
    return str(part["text"])


def _to_tool_call(call: Mapping[str, Any], path: str, *, arguments_as_text: bool) -> dict[str, Any]:
    function = call["function"]
    arguments = _to_arguments(function.get("arguments"), f"{path}.function.arguments")
    written = json.dumps(arguments, ensure_ascii=False) if arguments_as_text else arguments
    identity = {"id": call["id"]} if isinstance(call.get("id"), str) else {}
    return {**identity, "type": "function", "function": {"name": function["name"], "arguments": written}}


def _to_arguments(arguments: Any, path: str) -> dict[str, Any]:
    """Templates iterate over arguments, so their JSON text is parsed; none at all are an empty object."""
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments) if arguments.strip() else {}
        except (msgspec.DecodeError, RecursionError) as error:
            raise RequestRefused(f"{path}: not valid JSON ({error})", field=path) from error
    if arguments is None:
        return {}
    if not isinstance(arguments, dict):
        raise RequestRefused(f"{path}: must be a JSON object", field=path)
    return arguments
