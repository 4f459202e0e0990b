"""The model's chat template: compiled once, rendered in transformers' sandbox, bounded in time and size.

Before compiling, the template's syntax tree is changed in two ways:

- control tokens in its literals become markers (``control_tokens``). Literals it only compares or searches with
  (``'<|im_end|>' in content``, ``content.split('</s>')``) stay as they are, since they are held against text of the
  request;
- every turn of a loop looks at the clock.

Some templates put control tokens together from pieces (``'<|' + message['role'] + '|>'``), so that no literal holds
them whole. Which ones is found out at load time by rendering harmless conversations. For such a template the first and
last characters of those tokens are shielded in all text of the request but the role, so that only the template can
spell them.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

import jinja2
from jinja2 import nodes

from mindserve.chat.control_tokens import ControlTokens, any_of

MAX_RENDERED_CHARACTERS: Final = 32 * 1024 * 1024
"""A prompt longer than this is refused: eight times the text a request may carry."""

_SEARCHING_METHODS: Final = frozenset(
    {"startswith", "endswith", "split", "rsplit", "partition", "rpartition", "find", "rfind", "index", "rindex"}
    | {"count", "replace", "strip", "lstrip", "rstrip", "removeprefix", "removesuffix"}
)
_PROBING_S: Final = 10.0
_PLAIN_ROLE: Final = re.compile(r"\w+")

Message = dict[str, Any]
Tool = dict[str, Any]


class TemplateFailed(Exception):
    """The template refused its input; the text is the template's own."""


class TemplateLimit(Exception):
    """Rendering gave too much; the text tells the limit."""


class TemplateTimeout(Exception):
    """The deadline passed."""


def check_deadline(deadline: float) -> None:
    """Raise ``TemplateTimeout`` once the monotonic clock is past ``deadline``."""
    if time.monotonic() > deadline:
        raise TemplateTimeout


class ChatTemplate:
    """One template of a model. Thread-safe."""

    def __init__(self, source: str, *, control: ControlTokens, variables: dict[str, str]) -> None:
        """``variables``: the tokenizer's named tokens (``bos_token``, ...). Raises ``jinja2.TemplateError``."""
        from transformers.utils.chat_template_utils import (
            _cached_compile_jinja_template,
        )  # takes a second, beside the engine

        self.source = source
        environment: Any = _cached_compile_jinja_template(source).environment  # transformers' sandbox, ours alone
        environment.check_deadline = self._check_deadline
        self._clock = threading.local()
        tree = environment.parse(source)
        self._literals = frozenset(node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str))
        _mark(tree, control)
        _watch_loops(tree)
        self._template: jinja2.Template = environment.from_string(tree)
        self._control = control
        self._variables = {name: control.mark(token) for name, token in variables.items()}
        self._shield: _Shield | None = None
        pieced = self._find_pieced_tokens()
        if pieced:
            self._shield = _Shield(pieced)
        self.wants_arguments_as_text = self._find_arguments_as_text()
        """Whether it writes a tool call's arguments out as they are, instead of formatting an object."""

    def names(self, literal: str) -> bool:
        """Whether the template mentions ``literal`` as a string of its own, such as a role."""
        return literal in self._literals

    def render(
        self,
        messages: list[Message],
        *,
        tools: list[Tool] | None = None,
        template_kwargs: dict[str, Any] | None = None,
        add_generation_prompt: bool = True,
        deadline: float = float("inf"),
    ) -> str:
        """Marked text, for ``MarkedEncoder``. ``deadline`` is on the monotonic clock. Of ``template_kwargs`` those
        count that the contract does not reserve; one of the tokenizer's own names ("image_token") is text like any.

        Raises ``TemplateFailed``, ``TemplateLimit`` and ``TemplateTimeout``."""
        context = {**(template_kwargs or {}), "messages": messages, "tools": tools, "documents": None}
        if self._shield:
            context = self._shield.cover(context)
        context = {**self._variables, **context, "add_generation_prompt": add_generation_prompt}
        self._clock.deadline = deadline
        try:
            text = "".join(self._bounded(self._template.generate(context)))
        except (TemplateLimit, TemplateTimeout):
            raise
        except Exception as error:  # whatever a template does with odd input, it is the input's
            raise TemplateFailed(self.readable(str(error) or type(error).__name__)) from error
        return self._shield.uncover(text, self._control) if self._shield else text

    def readable(self, text: str) -> str:
        """Text that came out of the template, for people."""
        return self._control.unmark(self._shield.uncover(text, self._control) if self._shield else text)

    def _bounded(self, parts: Iterator[str]) -> Iterator[str]:
        size = 0
        for part in parts:
            size += len(part)
            if size > MAX_RENDERED_CHARACTERS:
                raise TemplateLimit(f"the prompt is longer than {MAX_RENDERED_CHARACTERS} characters")
            self._check_deadline()
            yield part

    def _check_deadline(self) -> None:
        check_deadline(self._clock.deadline)

    def _find_pieced_tokens(self) -> set[str]:
        return {token for text in self._try(_harmless_conversations()) for token in self._control.find(text)}

    def _find_arguments_as_text(self) -> bool:
        if list(self._try([_tool_conversation({"probe": "x"})])):
            return False
        return bool(list(self._try([_tool_conversation(json.dumps({"probe": "x"}))])))

    def _try(self, conversations: list[list[Message]]) -> Iterator[str]:
        deadline = time.monotonic() + _PROBING_S
        for messages in conversations:
            try:
                yield self.render(messages, deadline=deadline)
            except (TemplateFailed, TemplateLimit, TemplateTimeout):
                continue  # a template may well refuse a role or an order


class _Shield:
    """Keeps text of the request from completing tokens that the template puts together from pieces."""

    def __init__(self, pieced: set[str]) -> None:
        ends = {token[0] for token in pieced} | {token[-1] for token in pieced}
        secret = secrets.token_hex(16)
        self._covers = {ord(end): f"\ue0f3{secret}{index}\ue0f4" for index, end in enumerate(sorted(ends))}
        self._ends = {cover: chr(end) for end, cover in self._covers.items()}
        self._pieced = any_of(sorted(pieced, key=len, reverse=True))
        self._covered = any_of(self._ends)

    def cover(self, context: dict[str, Any]) -> dict[str, Any]:
        """The template's variables, covered but for the messages' roles."""
        covered: dict[str, Any] = self._cover(context)
        for message, original in zip(covered["messages"], context["messages"], strict=True):
            if _PLAIN_ROLE.fullmatch(original["role"]):
                message["role"] = original["role"]
        return covered

    def _cover(self, value: Any) -> Any:
        if isinstance(value, str):
            return value.translate(self._covers)
        if isinstance(value, dict):
            return {self._cover(name): self._cover(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self._cover(item) for item in value]
        return value

    def uncover(self, text: str, control: ControlTokens) -> str:
        marked = self._pieced.sub(lambda match: control.markers[match[0]], text)
        return self._covered.sub(lambda match: self._ends[match[0]], marked)


def _mark(node: nodes.Node, control: ControlTokens) -> None:
    """Respell control tokens in all literals below ``node`` that may come out of the template."""
    if isinstance(node, nodes.TemplateData):
        node.data = control.mark(node.data)
    elif isinstance(node, nodes.Const) and isinstance(node.value, str):
        node.value = control.mark(node.value)
    elif isinstance(node, nodes.Compare | nodes.Test):
        return
    elif isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr) and node.node.attr in _SEARCHING_METHODS:
        _mark(node.node, control)
    elif isinstance(node, nodes.Filter) and node.name == "replace":
        if node.node is not None:
            _mark(node.node, control)
    else:
        for child in node.iter_child_nodes():
            _mark(child, control)


def _watch_loops(tree: nodes.Template) -> None:
    for loop in tree.find_all(nodes.For):
        check = nodes.Call(nodes.EnvironmentAttribute("check_deadline"), [], [], None, None)
        loop.body.insert(0, nodes.ExprStmt(check).set_lineno(loop.lineno))


def _harmless_conversations() -> list[list[Message]]:
    roles = ["system", "developer", "user", "assistant", "tool", "observation"]
    speakers: list[list[str]] = [[role] for role in roles] + [["user", role, "user"] for role in roles]
    speakers += [["system", "user", "assistant", "user"], ["user", "assistant", "tool", "assistant", "user"]]
    conversations = [[{"role": role, "content": "x"} for role in turn] for turn in speakers]
    return [*conversations, _tool_conversation({"probe": "x"}), _tool_conversation('{"probe": "x"}')]


def _tool_conversation(arguments: Any) -> list[Message]:
    function = {"name": "probe", "arguments": arguments}
    call = {"id": "probe0000", "type": "function", "function": function}
    return [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "x", "tool_call_id": "probe0000", "name": "probe"},
    ]
