"""What reads the tokens of a request's sequences: detokenizers, stop strings and parsers, set up for the request."""

from __future__ import annotations

from typing import Final

from mindserve.api._generated.models import ChatCompletionRequest
from mindserve.api.lower import stop_strings
from mindserve.api.openai_fields import max_calls
from mindserve.api.presence import given
from mindserve.api.server import Server
from mindserve.api.tool_use import may_call_tools
from mindserve.chat.answer import SequenceAnswer
from mindserve.chat.constraints.build import Thinking
from mindserve.chat.output import SequenceText
from mindserve.chat.parsing.formats import AnswerFormat, choose_format
from mindserve.chat.parsing.machine import AnswerParser, CallFormat
from mindserve.chat.parsing.toolbox import Toolbox
from mindserve.chat.stop import StopStrings
from mindserve.config.model_types import settings_of_type
from mindserve_engine.types import GenerationRequest

INLINE_STOP_CHARACTERS: Final = 2048
"""More are compiled by a worker, so that the event loop is not held up."""


def answer_format(request: ChatCompletionRequest, server: Server) -> AnswerFormat:
    """How to read what the served model generates for ``request``."""
    model_type = server.engine.info.model_type
    operator = settings_of_type(server.settings.model_types, model_type)
    return choose_format(
        model_type,
        server.tokenizer.template_source(with_tools=may_call_tools(request)),
        parser=operator.tool_call_parser or server.settings.tool_call_parser,
        enable_reasoning=operator.enable_reasoning,
    )


def thinking_of(
    request: ChatCompletionRequest, form: AnswerFormat, server: Server, prompt_token_ids: list[int]
) -> Thinking:
    """Whether a chain of thought may come before the answer, and whether the prompt has opened it."""
    is_open = form.has_reasoning and server.tokenizer.opens_reasoning(prompt_token_ids)
    return Thinking(form.has_reasoning and (is_open or not _switches_thinking_off(request)), is_open)


async def sequence_answers(
    request: ChatCompletionRequest, form: AnswerFormat, server: Server, lowered: GenerationRequest
) -> list[SequenceAnswer]:
    """One per sequence; they share what is compiled of the request."""
    stops = stop_strings(request)
    is_short = sum(map(len, stops)) <= INLINE_STOP_CHARACTERS
    compiled = StopStrings(stops) if is_short else await server.prompts.run(lambda: StopStrings(stops))
    calls = CallFormat(form.family, _toolbox(request)) if form.family and may_call_tools(request) else None
    thinking = thinking_of(request, form, server, lowered.prompt_token_ids)
    source = server.tokenizer.showing(form.marks) if calls or thinking.has_reasoning else server.tokenizer

    def answer() -> SequenceAnswer:
        text = SequenceText(
            source,
            skip_special_tokens=given(request.skip_special_tokens) is not False,
            stops=compiled,
            include_stop=given(request.include_stop_str_in_output) is True,
        )
        if calls is None and not thinking.has_reasoning:
            return SequenceAnswer(text)
        parser = AnswerParser(calls=calls, has_reasoning=thinking.has_reasoning, in_reasoning=thinking.is_open)
        return SequenceAnswer(text, parser, max_calls=max_calls(request))

    return [answer() for _ in range(lowered.num_sequences)]


def _switches_thinking_off(request: ChatCompletionRequest) -> bool:
    return (given(request.chat_template_kwargs) or {}).get("enable_thinking") is False


def _toolbox(request: ChatCompletionRequest) -> Toolbox:
    tools = given(request.tools) or []
    return Toolbox((tool.function.name, given(tool.function.parameters) or {}) for tool in tools)
