"""The messages of a request as chat templates take them.

Fields that no template reads are left out: a template may react to any key. Roles stay as they are, but for
``developer``, which becomes ``system`` for a template that does not know it. Content is one text, or with media a list
of parts that say their kind and nothing else. That arguments are JSON objects has been checked before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mindserve.chat.media.refs import KINDS

_TEXT_FIELDS: Final = ("name", "tool_call_id", "reasoning_content")


def to_conversation(
    messages: list[dict[str, Any]], *, knows_developer: bool, arguments_as_text: bool
) -> list[dict[str, Any]]:
    """``arguments_as_text``: the template writes the arguments of tool calls out as they are."""
    return [
        _to_message(message, knows_developer=knows_developer, arguments_as_text=arguments_as_text)
        for message in messages
    ]


def _to_message(message: Mapping[str, Any], *, knows_developer: bool, arguments_as_text: bool) -> dict[str, Any]:
    role = message["role"]
    if role == "developer" and not knows_developer:
        role = "system"
    result = {"role": role, "content": _to_content(message.get("content"))}
    result |= {field: message[field] for field in _TEXT_FIELDS if isinstance(message.get(field), str)}
    reasoning = result.get("reasoning_content", message.get("reasoning"))
    if isinstance(reasoning, str):
        # Both names are in use, and templates of one family read a third.
        result |= {"reasoning_content": reasoning, "thinking": reasoning}
    if message.get("tool_calls"):
        result["tool_calls"] = [
            _to_tool_call(call, arguments_as_text=arguments_as_text) for call in message["tool_calls"]
        ]
    return result


def _to_content(content: str | list[dict[str, Any]] | None) -> str | list[dict[str, Any]]:
    if content is None or isinstance(content, str):
        return content or ""
    if any(part["type"] in KINDS for part in content):
        return [_to_part(part) for part in content]
    return "".join(part["text"] for part in content)


def _to_part(part: Mapping[str, Any]) -> dict[str, Any]:
    """Templates know an item by its type or, as Qwen2-Audio's first, by a key of its kind."""
    kind = KINDS.get(part["type"])
    return {"type": "text", "text": part["text"]} if kind is None else {"type": kind.value, kind.value: ""}


def _to_tool_call(call: Mapping[str, Any], *, arguments_as_text: bool) -> dict[str, Any]:
    function = call["function"]
    arguments = _to_arguments(function.get("arguments"))
    written = json.dumps(arguments, ensure_ascii=False) if arguments_as_text else arguments
    identity = {"id": call["id"]} if isinstance(call.get("id"), str) else {}
    return {**identity, "type": "function", "function": {"name": function["name"], "arguments": written}}


def _to_arguments(arguments: str | dict[str, Any] | None) -> dict[str, Any]:
    """Templates iterate over arguments, so their JSON text is parsed; none at all are an empty object."""
    if isinstance(arguments, str):
        return msgspec.json.decode(arguments, type=dict[str, Any]) if arguments.strip() else {}
    return arguments or {}
