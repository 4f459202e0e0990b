"""Rules about ``messages``."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from mindserve.api._generated.models import ChatMessage, TextPart
from mindserve.api._generated.rules import Rule
from mindserve.api.checks.breach import Breach, Subject, required_bound
from mindserve.api.nesting import find_excess
from mindserve.api.presence import filled, given


def text_length(subject: Subject, rule: Rule) -> Breach | None:
    limit = subject.settings.max_messages_length
    length = sum(len(text) for message in subject.request.messages for text in _texts(message))
    return Breach(value=length, bound=limit) if length > limit else None


def _texts(message: ChatMessage) -> Iterator[str]:
    """Every string that a template may put into the prompt (reading C21)."""
    yield message.role
    yield given(message.tool_call_id) or ""
    content = given(message.content)
    if isinstance(content, str):
        yield content
    elif content is not None:
        yield from (part.text for part in content if isinstance(part, TextPart))
    yield given(message.reasoning_content) or ""
    yield given(message.reasoning) or ""
    for call in given(message.tool_calls) or ():
        arguments = given(call.function.arguments) or ""
        yield call.id
        yield call.function.name
        yield arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()


def tool_call_id_required(subject: Subject, rule: Rule) -> Breach | None:
    for i, message in enumerate(subject.request.messages):
        if message.role == "tool" and given(message.tool_call_id) is None:
            return Breach(place={"i": i})
    return None


def content_required(subject: Subject, rule: Rule) -> Breach | None:
    if subject.settings.allow_empty_content:
        return None
    for i, message in enumerate(subject.request.messages):
        may_be_empty = message.role == "tool" or (message.role == "assistant" and filled(message.tool_calls))
        if not filled(message.content) and not may_be_empty:
            return Breach(value=message.role, place={"i": i})
    return None


def tool_call_arguments_values(subject: Subject, rule: Rule) -> Breach | None:
    """Counted before ``tool_call_arguments_json`` builds any of them. A text with a quote too many may hide values of
    those behind it here; it is no JSON, so there those are never looked at."""
    texts = [
        call.function.arguments.encode("utf-8", "surrogatepass")
        for message in subject.request.messages
        for call in given(message.tool_calls) or ()
        if isinstance(call.function.arguments, str)
    ]
    text = b",".join(texts)  # with a comma for each text but one
    excess = find_excess(text, max_depth=len(text), max_values=int(required_bound(rule)) + len(texts) - 1)
    return None if excess is None else Breach()


def tool_call_arguments_json(subject: Subject, rule: Rule) -> Breach | None:
    for i, message in enumerate(subject.request.messages):
        for j, call in enumerate(given(message.tool_calls) or ()):
            arguments = call.function.arguments
            if isinstance(arguments, str) and not _is_object(arguments, subject.settings.max_json_depth):
                return Breach(value=arguments, place={"i": i, "j": j})
    return None


def _is_object(text: str, max_depth: int) -> bool:
    if not text.strip():
        return True  # "" stands for {}
    data = text.encode("utf-8", "surrogatepass")
    if find_excess(data, max_depth=max_depth) is not None:
        return False
    try:
        return isinstance(msgspec.json.decode(data), dict)
    except msgspec.DecodeError:
        return False


def media_parts_limit(subject: Subject, rule: Rule) -> Breach | None:
    num_parts = sum(
        not isinstance(part, TextPart)
        for message in subject.request.messages
        if isinstance(message.content, list)
        for part in message.content
    )
    limit = min(subject.settings.media.max_parts, required_bound(rule))
    return Breach(value=num_parts, bound=limit) if num_parts > limit else None
