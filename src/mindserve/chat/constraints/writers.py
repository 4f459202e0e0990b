"""How each family of models writes calls, as grammar: the counterpart of ``chat.parsing.families``."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final

import msgspec

from mindserve.chat.constraints.lark import ANY_TEXT, Lark, escaped, one_of
from mindserve.chat.constraints.schema import Schema, SchemaUnfit, is_lenient, property_schemas

_NEWLINE: Final = "\n"
MAX_CALLS: Final = 16
"""Of one answer, where calls are enforced: a confused model would go on with nothing else."""
_NO_OBJECT: Final = r"/([^{<\s](.|\n)*)?/"
"""Text that does not begin as a call does that is the whole answer."""
_ANY_PARAMETER: Final = r"/<parameter=[^<>\n]{1,64}>\n[^<]*\n<\/parameter>\n/"


class Tool(msgspec.Struct, frozen=True):
    """A tool that may be called."""

    name: str
    arguments: Schema
    """Ready for a grammar: ``schema.enforced`` or ``schema.suggested``."""


class Writer(msgspec.Struct, frozen=True, kw_only=True):
    """The pieces of one or more calls in a row: ``begin call (between call)* end``."""

    call: Callable[[Lark, Tool], str]
    """One call as an expression, without ``opening``."""
    opening: str = ""
    """With which each call begins."""
    begin: str = ""
    between: str = "\n"
    end: str = ""
    trigger: str = ""
    """The mark after which text is a call: the end of ``begin + opening`` or a part of it."""
    head: Callable[[str], str] | None = None
    """Where no mark but the tool's name tells a call from text: a pattern for all of a call up to the arguments."""
    gap: str = ""
    """A pattern for what may stand between that and the arguments."""
    tail: str = ""
    """A pattern for what follows the arguments then."""
    another: Callable[[str], str] | None = None
    """As ``head``, of a call that follows another one in the same block."""
    block_end: str = ""
    """A pattern for what follows the last call of a block."""
    at_start: bool = False
    """A call is the whole answer or none of it."""
    also: Writer | None = None
    """Another way in which the model writes calls when it is free to."""


def _object(lark: Lark, tool: Tool, key: str) -> str:
    """``{"name": ..., key: {...}}``"""
    head = lark.text(f'{{"name": {json.dumps(tool.name, ensure_ascii=False)}, "{key}": ')
    return f"{head} {lark.json(tool.arguments)} {lark.text('}')}"


def _hermes(lark: Lark, tool: Tool) -> str:
    newline = lark.text(_NEWLINE)
    return f"{newline} {_object(lark, tool, 'arguments')} {newline} {lark.mark('</tool_call>')}"


def _llama3(lark: Lark, tool: Tool) -> str:
    return _object(lark, tool, "parameters")


def _fenced(lark: Lark, tool: Tool) -> str:
    return _object(lark, tool, "arguments")


def _fenced_head(name: str) -> str:
    return f"{ANY_TEXT}```json{_fenced_another(name)}"


def _fenced_another(name: str) -> str:
    return rf'\s*\{{\s*"name"\s*:\s*{escaped(json.dumps(name, ensure_ascii=False))}\s*,\s*"arguments"\s*:'


def _line_head(name: str) -> str:
    return rf"({ANY_TEXT}\n)?{escaped(name)}\n"


def _line(lark: Lark, tool: Tool) -> str:
    return f"{lark.text(tool.name + _NEWLINE)} {lark.json(tool.arguments)}"


def _deepseek_v3(lark: Lark, tool: Tool) -> str:
    head = lark.mark("function<｜tool▁sep｜>") + " " + lark.text(f"{tool.name}\n```json\n")
    tail = lark.text("\n```") + " " + lark.mark("<｜tool▁call▁end｜>")
    return f"{head} {lark.json(tool.arguments)} {tail}"


def _deepseek_v31(lark: Lark, tool: Tool) -> str:
    head = f"{lark.text(tool.name)} {lark.mark('<｜tool▁sep｜>')}"
    return f"{head} {lark.json(tool.arguments)} {lark.mark('<｜tool▁call▁end｜>')}"


def _qwen3_coder(lark: Lark, tool: Tool) -> str:
    """Parameters in the order of the schema; any, where it names none and need not be enforced. Raises ``SchemaUnfit``
    for arguments that are more than a list of them."""
    parts = [lark.text(tool.name + ">\n")]
    guidance, lenient = tool.arguments.get("x-guidance"), is_lenient(tool.arguments)
    if lenient and not tool.arguments.get("properties"):
        parts.append(f"({lark.rule(_ANY_PARAMETER)})*")
    for name, schema, is_required in property_schemas(tool.arguments):
        value = _plain_text(lark, schema, lenient=lenient) or lark.json({**schema, "x-guidance": guidance})
        if any(mark in name for mark in "<>\n"):
            if lenient:
                continue
            raise SchemaUnfit(f"a parameter called {name!r} cannot be written in this model's format")
        head, tail = lark.text(f"<parameter={name}>\n"), lark.text("\n</parameter>\n")
        part = f"{head} {value} {tail}"
        parts.append(part if is_required else f"({part})?")
    return " ".join([*parts, lark.text("</function>"), lark.mark("\n</tool_call>")])


def _plain_text(lark: Lark, schema: dict[str, Any], *, lenient: bool) -> str | None:
    """A value that is written without quotes; None where it is written as JSON. Raises ``SchemaUnfit``."""
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(choices, list) and choices and all(isinstance(choice, str) for choice in choices):
        plain = [choice for choice in choices if "</parameter>" not in choice]
        if len(plain) < len(choices) and not lenient:
            raise SchemaUnfit("a choice that holds </parameter> cannot be written in this model's format")
        return one_of(map(lark.text, plain)) if plain else lark.text("")
    if schema.get("type") not in ("string", ["string"]):
        return None
    bounds = sorted(schema.keys() & {"pattern", "format"})
    if bounds and not lenient:
        raise SchemaUnfit(f"{bounds[0]} cannot be enforced in this model's format, which writes text without quotes")
    fewest, most = schema.get("minLength", 0), schema.get("maxLength", "")
    return f"/[^<]{{{fewest},{most}}}/"


_HERMES: Final = Writer(call=_hermes, opening="<tool_call>", trigger="<tool_call>")
WRITERS: Final = MappingProxyType(
    {
        "hermes": _HERMES,
        "qwen3_coder": Writer(call=_qwen3_coder, opening="<tool_call>\n<function=", trigger="<function="),
        "qwen2_5_coder": Writer(
            call=_fenced,
            begin="```json\n",
            end="\n```",
            head=_fenced_head,
            gap=r"\s*",
            tail=r"\s*\}",
            another=_fenced_another,
            block_end=r"\s*```",
            also=_HERMES,
        ),
        "chatglm3": Writer(call=_line, head=_line_head),
        "glm_4": Writer(call=_line, head=_line_head),
        "llama3_json": Writer(call=_llama3, between="; ", at_start=True),
        "deepseek_v3": Writer(
            call=_deepseek_v3,
            begin="<｜tool▁calls▁begin｜>",
            opening="<｜tool▁call▁begin｜>",
            end="<｜tool▁calls▁end｜>",
            trigger="<｜tool▁calls▁begin｜>",
        ),
        "deepseek_v31": Writer(
            call=_deepseek_v31,
            begin="<｜tool▁calls▁begin｜>",
            opening="<｜tool▁call▁begin｜>",
            between="",
            end="<｜tool▁calls▁end｜>",
            trigger="<｜tool▁calls▁begin｜>",
        ),
    }
)
"""By ``Family.name``."""


class CallGrammar:
    """Expressions for calls of the given tools."""

    def __init__(self, lark: Lark, writer: Writer, tools: list[Tool]) -> None:
        """Raises ``SchemaUnfit`` when one of the tools' arguments cannot be written."""
        self._lark = lark
        self._writer = writer
        self._tools = tools
        self._one = lark.rule(one_of(writer.call(lark, tool) for tool in tools))

    def exactly_one(self) -> str:
        writer, lark = self._writer, self._lark
        return f"{lark.mark(writer.begin + writer.opening)} {self._one} {lark.mark(writer.end)}"

    def at_least_one(self) -> str:
        writer, lark = self._writer, self._lark
        first = f"{lark.mark(writer.begin + writer.opening)} {self._one}"
        return f"{first} {self._more()} {lark.mark(writer.end)}"

    def within_text(self) -> str:
        """Free text with any number of calls in it."""
        writer, lark = self._writer, self._lark
        if writer.at_start:
            return one_of([self.at_least_one(), lark.rule(_NO_OBJECT)])
        blocks = self._blocks()
        if writer.also is not None:
            blocks += CallGrammar(lark, writer.also, self._tools)._blocks()
        return f"{one_of(blocks)}* {lark.any_text()}"

    def _blocks(self) -> list[str]:
        """Expressions for text up to a call, and the call."""
        return [self._marked_block()] if self._writer.head is None else self._named_blocks(self._writer.head)

    def _named_blocks(self, head: Callable[[str], str]) -> list[str]:
        writer, lark = self._writer, self._lark
        patterns = (writer.gap, writer.tail, writer.block_end)
        gap, tail, end = (lark.rule(f"/{pattern}/") if pattern else "" for pattern in patterns)
        bodies = [f"{gap} {lark.rule(lark.json(tool.arguments))} {tail}" for tool in self._tools]
        others = ""
        if writer.another is not None:
            heads = [lark.rule(f"/{writer.another(tool.name)}/") for tool in self._tools]
            others = f"{lark.rule(one_of(f'{head} {body}' for head, body in zip(heads, bodies, strict=True)))}*"
        return [
            f"{lark.lazy(head(tool.name))} {body} {others} {end}"
            for tool, body in zip(self._tools, bodies, strict=True)
        ]

    def _marked_block(self) -> str:
        writer, lark = self._writer, self._lark
        behind = (writer.begin + writer.opening).partition(writer.trigger)[2]
        block = f"{lark.through(writer.trigger)} {lark.mark(behind)} {self._one}"
        return f"{block} {self._more()} {lark.mark(writer.end)}" if writer.end else block

    def _more(self) -> str:
        return f"({self._lark.mark(self._writer.between + self._writer.opening)} {self._one}){{0,{MAX_CALLS - 1}}}"
