"""What a request binds the answer to, brought to the engine; and whose fault it is when the engine cannot follow."""

from __future__ import annotations

import msgspec

from mindserve.api._generated.models import ChatCompletionRequest, NamedToolChoice, ResponseFormat
from mindserve.api.answers import thinking_of
from mindserve.api.presence import given
from mindserve.api.server import Server
from mindserve.api.tool_use import may_call_tools
from mindserve.chat.constraints.build import Bonds, Constraint, ConstraintRefused, OfferedTool, build
from mindserve.chat.constraints.schema import ANY_OBJECT, Schema
from mindserve.chat.parsing.formats import AnswerFormat
from mindserve.errors import RequestRefused
from mindserve_engine.interface import Engine, Generation, RequestInvalid
from mindserve_engine.types import GenerationRequest


async def constraint_of(
    request: ChatCompletionRequest, form: AnswerFormat, server: Server, prompt_token_ids: list[int]
) -> Constraint | None:
    """``None``: nothing binds the answer. Raises ``RequestRefused`` naming the schema that cannot be enforced."""
    bonds = _bonds(request)
    if not bonds.bind:
        return None
    thinking = thinking_of(request, form, server, prompt_token_ids)
    special_tokens = server.tokenizer.special_tokens

    def work() -> Constraint:
        return build(bonds, family=form.family, thinking=thinking, special_tokens=special_tokens)

    try:
        return await server.prompts.run(work)
    except ConstraintRefused as error:
        raise _refusal(error.field, str(error)) from error


async def admit(engine: Engine, lowered: GenerationRequest, constraint: Constraint | None) -> Generation:
    """``Engine.admit`` under the constraint. Raises what it raises, and ``RequestRefused`` naming the schema."""
    if constraint is None:
        return await engine.admit(lowered)
    # After the end of what was asked for nothing else may come, so the end must count.
    bound = msgspec.structs.replace(lowered, ignore_eos=False, grammar=constraint.grammar)
    try:
        return await engine.admit(bound)
    except RequestInvalid as error:
        if error.field != "grammar":
            raise
        if constraint.fallback is None:
            raise await _blamed(engine, constraint, error.reason) from error
    loose = Constraint(constraint.fallback, None, constraint.parts)
    return await admit(engine, lowered, loose)


async def _blamed(engine: Engine, constraint: Constraint, reason: str) -> RequestRefused:
    """Names the first schema that cannot be enforced by itself."""
    for field, grammar in constraint.parts:
        try:
            await engine.check_grammar(grammar)
        except RequestInvalid as error:
            return _refusal(field, error.reason)
    return _refusal("tools", reason)


def _refusal(field: str, reason: str) -> RequestRefused:
    return RequestRefused(f"{field} cannot be enforced: {reason}", field=field)


def _bonds(request: ChatCompletionRequest) -> Bonds:
    form, form_field = _form(given(request.response_format))
    if not may_call_tools(request):
        return Bonds(form=form, form_field=form_field)
    tools = [
        OfferedTool(
            name=tool.function.name,
            parameters=given(tool.function.parameters),
            is_strict=tool.function.strict is True,
            field=f"tools[{i}].function.parameters",
        )
        for i, tool in enumerate(given(request.tools) or [])
    ]
    choice = request.tool_choice
    if isinstance(choice, NamedToolChoice):
        named = next(tool for tool in tools if tool.name == choice.function.name)
        return Bonds(choice="one", tools=(named,))
    if choice == "required":
        return Bonds(choice="some", tools=tuple(tools))
    return Bonds(tools=tuple(tools), form=form, form_field=form_field)


def _form(wanted: ResponseFormat | None) -> tuple[Schema | None, str]:
    """The schema of the answer and its path."""
    if wanted is None or wanted.type == "text":
        return None, ""
    described = given(wanted.json_schema)
    if wanted.type == "json_object" or described is None:
        return ANY_OBJECT, "response_format.type"
    return described.schema, "response_format.json_schema.schema"
