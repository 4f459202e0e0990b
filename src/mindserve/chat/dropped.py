"""Finds what a chat template would silently leave out of the prompt.

A template that does not know a role, or tool calls, or tools, often just skips them, and the model then answers a
conversation the client did not send. Whether it does is seen by rendering the same conversation once more with a unique
word in each place, and looking for the words.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from typing import Any, Final

from mindserve.chat.template import ChatTemplate, Message, TemplateFailed, Tool, check_deadline
from mindserve.errors import RequestRefused

_WORD: Final = f"w{secrets.token_hex(8)}"
"""No text of a request holds it: it is not guessable."""
_WORDS: Final = re.compile(rf"{_WORD}(?:m\d+|p\d+n\d+|c\d+n\d+|t\d+)e")
"""The words of a message, of a part of a message, of a tool call in a message, and of a tool."""

IsRendered = Callable[[str], bool]
Content = str | list[dict[str, Any]]


def refuse_dropped(
    template: ChatTemplate,
    messages: list[Message],
    tools: list[Tool] | None,
    template_kwargs: dict[str, Any],
    *,
    rendered: str,
    deadline: float,
) -> None:
    """Raises ``RequestRefused`` naming the first message, tool call or tool that is not in the prompt.

    ``rendered`` is the prompt, which is searched where the template cannot render the words. Raises
    ``TemplateTimeout`` past ``deadline``, which is on the monotonic clock."""
    probe = [_with_words(message, index) for index, message in enumerate(messages)]
    probe_tools = [_with_word(tool, f"{_WORD}t{index}e") for index, tool in enumerate(tools)] if tools else None
    try:
        text = template.render(probe, tools=probe_tools, template_kwargs=template_kwargs, deadline=deadline)
    except TemplateFailed:
        probe, probe_tools, is_rendered = messages, tools, _search_of(rendered, deadline)
    else:
        # All words at once: a search of the prompt for each would take the square of its length.
        is_rendered = {"", *_WORDS.findall(text)}.__contains__  # what is empty cannot be left out
    for index, (message, words) in enumerate(zip(messages, probe, strict=True)):
        _check_message(message, words, is_rendered, f"messages[{index}]")
    for index, tool in enumerate(probe_tools or ()):
        if not is_rendered(tool["function"]["name"]):
            raise RequestRefused(
                "tools: the model's chat template does not render tools", field=f"tools[{index}]" if index else "tools"
            )


def _search_of(rendered: str, deadline: float) -> IsRendered:
    """Whether a text stands in ``rendered``. Texts are asked for in the order in which templates write them, so each
    search begins where the last one ended, and only one that finds nothing there looks at the whole."""
    found = {""}
    position = 0

    def is_rendered(text: str) -> bool:
        nonlocal position
        check_deadline(deadline)
        if text in found:
            return True
        place = rendered.find(text, position)
        if place < 0:
            place = rendered.find(text)
        if place < 0:
            return False
        found.add(text)
        position = place + len(text)
        return True

    return is_rendered


def _check_message(message: Message, words: Message, is_rendered: IsRendered, path: str) -> None:
    if not all(is_rendered(text.strip()) for text in _texts(words["content"])):
        raise RequestRefused(
            f"{path}.role: the model's chat template leaves out a message of role {message['role']!r} here",
            field=f"{path}.role",
        )
    for index, call in enumerate(words.get("tool_calls", ())):
        if not is_rendered(call["function"]["name"]):
            raise RequestRefused(
                f"{path}.tool_calls[{index}]: the model's chat template leaves out tool calls",
                field=f"{path}.tool_calls[{index}]",
            )


def _with_words(message: Message, index: int) -> Message:
    words = {**message, "content": _content_of_words(message["content"], index)}
    if "tool_calls" in message:
        words["tool_calls"] = [
            _with_word(call, f"{_WORD}c{index}n{number}e") for number, call in enumerate(message["tool_calls"])
        ]
    return words


def _content_of_words(content: Content, index: int) -> Content:
    """Media stay: their placeholders are counted elsewhere (``placeholders``)."""
    if isinstance(content, str):
        return f"{_WORD}m{index}e" if content.strip() else content
    return [
        {**part, "text": f"{_WORD}p{index}n{number}e"} if part.get("text", "").strip() else part
        for number, part in enumerate(content)
    ]


def _texts(content: Content) -> list[str]:
    return [content] if isinstance(content, str) else [part["text"] for part in content if "text" in part]


def _with_word(holder: dict[str, Any], word: str) -> dict[str, Any]:
    """A tool, or a tool call, of another name."""
    return {**holder, "function": {**holder["function"], "name": word}}
