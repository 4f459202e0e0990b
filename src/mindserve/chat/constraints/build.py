"""From what a request binds the answer to, to the grammar that the engine follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Literal

import msgspec

from mindserve.chat.constraints.lark import Lark, one_of
from mindserve.chat.constraints.schema import ANY_OBJECT, Schema, SchemaUnfit, arguments_schema, enforced, suggested
from mindserve.chat.constraints.writers import WRITERS, CallGrammar, Tool
from mindserve.chat.parsing.machine import THINK, THINK_END
from mindserve.chat.parsing.steps import Family

_SPACE: Final = r"/\n{0,4}/"
MAX_BYTES: Final = 131_072
"""Of all schemas of a request together, as compact JSON: a grammar of so much may take seconds to compile."""


class OfferedTool(msgspec.Struct, frozen=True):
    """A tool of the request."""

    name: str
    parameters: Schema | None
    is_strict: bool
    field: str
    """The path of its schema in the request."""


class Bonds(msgspec.Struct, frozen=True, kw_only=True):
    """What a request binds the answer to."""

    choice: Literal["auto", "one", "some"] = "auto"
    """``one``: exactly one call of ``tools``; ``some``: at least one."""
    tools: tuple[OfferedTool, ...] = ()
    """Those that may be called."""
    form: Schema | None = None
    """The schema of an answer that is no call."""
    form_field: str = ""

    @property
    def bind(self) -> bool:
        """Whether they bind anything."""
        return self.choice != "auto" or self.form is not None or any(tool.is_strict for tool in self.tools)


class Thinking(msgspec.Struct, frozen=True):
    """What comes before the answer."""

    has_reasoning: bool = False
    is_open: bool = False
    """The prompt has opened the chain of thought."""


class Constraint(msgspec.Struct, frozen=True):
    """Grammars for one request."""

    grammar: str
    fallback: str | None
    """With any object for the arguments of tools that are not strict, where there are such: for schemas that no grammar
    can take."""
    parts: list[tuple[str, str]]
    """The schemas that must be enforced, each by itself: the field's path and a grammar."""


class ConstraintRefused(Exception):
    """A schema cannot be enforced. ``field`` is its path in the request."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field = field


def build(bonds: Bonds, *, family: Family | None, thinking: Thinking, special_tokens: Mapping[str, int]) -> Constraint:
    """Raises ``ConstraintRefused``."""
    _check_names(bonds, family)
    room = _room(bonds)
    tools: list[Tool] = []
    for offered in bonds.tools:
        num_bytes = 0 if offered.is_strict else _num_bytes(offered.parameters)
        tools.append(_tool(offered, fits=num_bytes <= room))
        room -= num_bytes if num_bytes <= room else 0
    form = _form(bonds)
    parts = [
        (offered.field, _alone(tool.arguments))
        for offered, tool in zip(bonds.tools, tools, strict=True)
        if offered.is_strict
    ]
    if form is not None:
        parts.append((bonds.form_field, _alone(form)))

    def whole(tools: list[Tool]) -> str:
        lark = Lark(special_tokens)
        return lark.finish(_before(lark, thinking) + _answer(lark, bonds, family, tools, form))

    loose = [
        tool if offered.is_strict else Tool(tool.name, suggested(ANY_OBJECT))
        for offered, tool in zip(bonds.tools, tools, strict=True)
    ]
    has_loose = any(not offered.is_strict for offered in bonds.tools)
    return Constraint(whole(tools), whole(loose) if has_loose else None, parts)


def _check_names(bonds: Bonds, family: Family | None) -> None:
    """What is no call to the parser cannot be enforced as one."""
    for tool in bonds.tools:
        if family is not None and not family.can_name(tool.name):
            reason = f"a tool called {tool.name[:64]!r} cannot be called in this model's format"
            raise ConstraintRefused("tools", reason)


def _answer(lark: Lark, bonds: Bonds, family: Family | None, tools: list[Tool], form: Schema | None) -> str:
    ways: list[str] = []
    if tools and family is not None:
        with _blaming(bonds.tools[0].field if len(tools) == 1 else "tools"):
            calls = CallGrammar(lark, WRITERS[family.name], tools)
        if bonds.choice == "one":
            return calls.exactly_one()
        if bonds.choice == "some":
            return calls.at_least_one()
        ways.append(calls.within_text() if form is None else calls.at_least_one())
    if form is not None:
        ways.append(lark.json(form))
    return one_of(ways)


def _num_bytes(schema: Schema | None) -> int:
    return len(msgspec.json.encode(schema or {}))


def _room(bonds: Bonds) -> int:
    """What is left of ``MAX_BYTES`` for tools that are not strict, by all schemas that must be enforced."""
    strict = [tool.parameters for tool in bonds.tools if tool.is_strict]
    needed = sum(map(_num_bytes, [*strict, *([] if bonds.form is None else [bonds.form])]))
    if needed > MAX_BYTES:
        reason = f"the schemas that bind the answer take {needed} bytes together, {MAX_BYTES} can be enforced"
        raise ConstraintRefused("tools", reason)
    return MAX_BYTES - needed


def _tool(offered: OfferedTool, *, fits: bool) -> Tool:
    """``fits``: there is room for a schema that is not strict."""
    if offered.is_strict:
        return Tool(offered.name, _enforced(offered))
    try:
        schema = arguments_schema(offered.parameters if fits else None, is_strict=False)
    except SchemaUnfit:
        schema = ANY_OBJECT
    return Tool(offered.name, suggested(schema))


def _enforced(offered: OfferedTool) -> Schema:
    with _blaming(offered.field):
        return enforced(arguments_schema(offered.parameters, is_strict=True))


def _form(bonds: Bonds) -> Schema | None:
    if bonds.form is None:
        return None
    with _blaming(bonds.form_field):
        return enforced(bonds.form)


@contextmanager
def _blaming(field: str) -> Iterator[None]:
    """Raise ``SchemaUnfit`` as ``ConstraintRefused`` naming ``field``."""
    try:
        yield
    except SchemaUnfit as error:
        raise ConstraintRefused(field, str(error)) from error


def _alone(schema: Schema) -> str:
    lark = Lark({})
    return lark.finish(lark.json(schema))


def _before(lark: Lark, thinking: Thinking) -> str:
    """The chain of thought, and the empty lines that models put behind it."""
    if not thinking.has_reasoning:
        return ""
    thought = f"{lark.through(THINK_END)} {lark.rule(_SPACE)} "
    return thought if thinking.is_open else f"({lark.mark(THINK)} {thought})? "
