"""Rules about ``tools`` and ``tool_choice``, and about what cannot be combined with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from mindserve.api._generated.models import NamedToolChoice, Tool
from mindserve.api._generated.rules import Rule
from mindserve.api.checks.breach import Breach, Subject, required_bound
from mindserve.api.presence import filled, given
from mindserve.api.tool_use import may_call_tools


def offered_tools(subject: Subject) -> list[Tool]:
    return given(subject.request.tools) or []


def parameters_types(subject: Subject, rule: Rule) -> Breach | None:
    for i, tool in enumerate(offered_tools(subject)):
        for key, expected, value in _wrong_parameters(given(tool.function.parameters) or {}):
            return Breach(value=value, bound=expected, place={"i": i, "key": key})
    return None


def _wrong_parameters(parameters: dict[str, Any]) -> Iterator[tuple[str, str, object]]:
    kind, properties = parameters.get("type"), parameters.get("properties")
    required, additional = parameters.get("required"), parameters.get("additionalProperties")
    if kind is not None and not isinstance(kind, str):
        yield "type", "a string", kind
    if properties is not None and not isinstance(properties, dict):
        yield "properties", "an object", properties
    elif properties is not None:
        for name, schema in properties.items():
            if not isinstance(schema, dict):
                yield f"properties.{name[:64]}", "an object", schema
    if required is not None and not isinstance(required, list):
        yield "required", "a list of strings", required
    elif required is not None:
        for position, name in enumerate(required):
            if not isinstance(name, str):
                yield f"required[{position}]", "a string", name
    if additional is not None and not isinstance(additional, bool | dict):
        yield "additionalProperties", "a boolean or an object", additional


def strict_schema_size(subject: Subject, rule: Rule) -> Breach | None:
    for i, tool in enumerate(offered_tools(subject)):
        schema = given(tool.function.parameters)
        if tool.function.strict is not True or schema is None:
            continue
        num_bytes = len(msgspec.json.encode(schema))
        if num_bytes > required_bound(rule):
            return Breach(value=num_bytes, place={"i": i})
    return None


def choice_needs_tools(subject: Subject, rule: Rule) -> Breach | None:
    choice = subject.request.tool_choice
    asks = choice == "required" or isinstance(choice, NamedToolChoice)
    return Breach() if asks and not offered_tools(subject) else None


def choice_unknown_tool(subject: Subject, rule: Rule) -> Breach | None:
    choice = subject.request.tool_choice
    if not isinstance(choice, NamedToolChoice):
        return None
    names = {tool.function.name for tool in offered_tools(subject)}
    return Breach(value=choice.function.name) if choice.function.name not in names else None


def exclude_stop(subject: Subject, rule: Rule) -> Breach | None:
    return Breach() if may_call_tools(subject.request) and filled(subject.request.stop) else None


def exclude_stop_token_ids(subject: Subject, rule: Rule) -> Breach | None:
    return Breach() if may_call_tools(subject.request) and filled(subject.request.stop_token_ids) else None


def exclude_include_stop_str(subject: Subject, rule: Rule) -> Breach | None:
    return Breach() if may_call_tools(subject.request) and subject.request.include_stop_str_in_output is True else None


def exclude_beam(subject: Subject, rule: Rule) -> Breach | None:
    return Breach() if may_call_tools(subject.request) and subject.request.use_beam_search is True else None


def exclude_best_of(subject: Subject, rule: Rule) -> Breach | None:
    return _exclude_several(subject, given(subject.request.best_of))


def exclude_n(subject: Subject, rule: Rule) -> Breach | None:
    return _exclude_several(subject, given(subject.request.n))


def _exclude_several(subject: Subject, num_sequences: int | None) -> Breach | None:
    several = num_sequences is not None and num_sequences > 1
    return Breach(value=num_sequences) if several and may_call_tools(subject.request) else None


def exclude_logprobs(subject: Subject, rule: Rule) -> Breach | None:
    return Breach() if may_call_tools(subject.request) and subject.request.logprobs is True else None


def exclude_top_logprobs(subject: Subject, rule: Rule) -> Breach | None:
    """``top_logprobs`` counts as a wish for log-probabilities, be it 0, unless ``logprobs`` says no (R11)."""
    top_logprobs = given(subject.request.top_logprobs)
    switched_off = subject.request.logprobs is False and top_logprobs == 0
    if top_logprobs is None or switched_off or not may_call_tools(subject.request):
        return None
    return Breach(value=top_logprobs)
