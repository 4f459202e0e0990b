"""Rules about ``tools`` and ``tool_choice``, and about what cannot be combined with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mindserve_client._generated.rules import Rule
from mindserve_client.rules.breach import Body, Breach, exceeds, may_call_tools, num_json_bytes


def parameters_types(body: Body, rule: Rule) -> Breach | None:
    for i, tool in enumerate(body.get("tools") or ()):
        for key, expected, value in _wrong_parameters(tool["function"].get("parameters") or {}):
            return Breach(value=value, bound=expected, place={"i": i, "key": key})
    return None


def _wrong_parameters(parameters: dict[str, Any]) -> Iterator[tuple[str, str, object]]:
    kind, additional = parameters.get("type"), parameters.get("additionalProperties")
    if kind is not None and not isinstance(kind, str):
        yield "type", "a string", kind
    yield from _wrong_properties(parameters.get("properties"))
    yield from _wrong_names(parameters.get("required"))
    if additional is not None and not isinstance(additional, bool | dict):
        yield "additionalProperties", "a boolean or an object", additional


def _wrong_properties(properties: Any) -> Iterator[tuple[str, str, object]]:
    if properties is None:
        return
    if not isinstance(properties, dict):
        yield "properties", "an object", properties
        return
    for name, schema in properties.items():
        if not isinstance(schema, dict):
            yield f"properties.{name[:64]}", "an object", schema


def _wrong_names(required: Any) -> Iterator[tuple[str, str, object]]:
    if required is None:
        return
    if not isinstance(required, list):
        yield "required", "a list of strings", required
        return
    for position, name in enumerate(required):
        if not isinstance(name, str):
            yield f"required[{position}]", "a string", name


def strict_schema_size(body: Body, rule: Rule) -> Breach | None:
    for i, tool in enumerate(body.get("tools") or ()):
        schema = tool["function"].get("parameters")
        if tool["function"].get("strict") is True and schema is not None:
            breach = exceeds(num_json_bytes(schema), rule, i=i)
            if breach is not None:
                return breach
    return None


def choice_needs_tools(body: Body, rule: Rule) -> Breach | None:
    choice = body.get("tool_choice")
    return Breach() if (choice == "required" or isinstance(choice, dict)) and not body.get("tools") else None


def choice_unknown_tool(body: Body, rule: Rule) -> Breach | None:
    choice = body.get("tool_choice")
    if not isinstance(choice, dict):
        return None
    wanted, names = choice["function"]["name"], [tool["function"]["name"] for tool in body.get("tools") or ()]
    return Breach(value=wanted) if wanted not in names else None


def excludes(name: str, body: Body) -> Breach | None:
    """``name`` says anything, and tools may be called."""
    return Breach(value=body[name]) if body.get(name) and may_call_tools(body) else None


def exclude_stop(body: Body, rule: Rule) -> Breach | None:
    return excludes("stop", body)


def exclude_stop_token_ids(body: Body, rule: Rule) -> Breach | None:
    return excludes("stop_token_ids", body)


def exclude_include_stop_str(body: Body, rule: Rule) -> Breach | None:
    return excludes("include_stop_str_in_output", body)


def exclude_beam(body: Body, rule: Rule) -> Breach | None:
    return excludes("use_beam_search", body)


def exclude_logprobs(body: Body, rule: Rule) -> Breach | None:
    return excludes("logprobs", body)


def exclude_best_of(body: Body, rule: Rule) -> Breach | None:
    return excludes("best_of", body) if (body.get("best_of") or 1) > 1 else None


def exclude_n(body: Body, rule: Rule) -> Breach | None:
    return excludes("n", body) if (body.get("n") or 1) > 1 else None


def exclude_top_logprobs(body: Body, rule: Rule) -> Breach | None:
    """``top_logprobs`` counts as a wish for log-probabilities, be it 0, unless ``logprobs`` says no (reading R11)."""
    wanted = body.get("top_logprobs")
    switched_off = body.get("logprobs") is False and wanted == 0
    return None if wanted is None or switched_off or not may_call_tools(body) else Breach(value=wanted)
