"""Rules about ``messages`` and ``chat_template_kwargs``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from mindserve_client._generated.rules import Rule
from mindserve_client.rules.breach import Body, Breach, exceeds

_STRING_OR_MARK: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|(?P<mark>[\[{,])', re.DOTALL)


def tool_call_id_required(body: Body, rule: Rule) -> Breach | None:
    for i, message in enumerate(body["messages"]):
        if message["role"] == "tool" and message.get("tool_call_id") is None:
            return Breach(place={"i": i})
    return None


def _calls(body: Body) -> Iterator[tuple[int, int, Any]]:
    for i, message in enumerate(body["messages"]):
        for j, call in enumerate(message.get("tool_calls") or ()):
            yield i, j, call["function"].get("arguments")


def tool_call_arguments_values(body: Body, rule: Rule) -> Breach | None:
    texts = (arguments for _, _, arguments in _calls(body) if isinstance(arguments, str))
    num_values = sum(match["mark"] is not None for text in texts for match in _STRING_OR_MARK.finditer(text))
    return exceeds(num_values, rule)


def tool_call_arguments_json(body: Body, rule: Rule) -> Breach | None:
    for i, j, arguments in _calls(body):
        if isinstance(arguments, str) and arguments.strip() and not _is_object(arguments):
            return Breach(value=arguments, place={"i": i, "j": j})
    return None


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text, parse_constant=_refuse), dict)
    except (ValueError, RecursionError):
        return False


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def media_parts_limit(body: Body, rule: Rule) -> Breach | None:
    contents = (message.get("content") for message in body["messages"])
    return exceeds(
        sum(part["type"] != "text" for content in contents if isinstance(content, list) for part in content), rule
    )


def enable_thinking_type(body: Body, rule: Rule) -> Breach | None:
    value = (body.get("chat_template_kwargs") or {}).get("enable_thinking")
    return None if value is None or isinstance(value, bool) else Breach(value=value)


def template_kwargs_reserved(body: Body, rule: Rule) -> Breach | None:
    reserved = [key for key in body.get("chat_template_kwargs") or () if key in rule.values]
    return Breach(place={"key": reserved[0]}) if reserved else None


def template_kwargs_scalar(body: Body, rule: Rule) -> Breach | None:
    for key, value in (body.get("chat_template_kwargs") or {}).items():
        if isinstance(value, dict | list):
            return Breach(value=value, place={"key": key[:64]})
    return None
