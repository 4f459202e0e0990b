"""OpenAI's own wire: its requests, answers, chunks and errors (readings D1 to D13)."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET

from mindserve.api._generated import models, openai_models
from mindserve.api.dialect.parts import StreamForm, WireError, error_headers, error_text, rules_of
from mindserve.api.presence import given
from mindserve.api.request_model import RequestModel
from mindserve.config.settings import Dialect as DialectName
from mindserve.errors import RefusalKind, RequestRefused


class _Class(NamedTuple):
    status: int
    type: Literal["invalid_request_error", "rate_limit_error", "server_error"]
    code: str | None


_ERRORS: Final[dict[RefusalKind, _Class]] = {
    RefusalKind.VALIDATION: _Class(400, "invalid_request_error", None),
    RefusalKind.UNAUTHORIZED: _Class(401, "invalid_request_error", "invalid_api_key"),
    RefusalKind.MODEL_NOT_FOUND: _Class(404, "invalid_request_error", "model_not_found"),
    RefusalKind.MODEL_PATH_NOT_FOUND: _Class(404, "invalid_request_error", "model_not_found"),
    RefusalKind.CONTEXT_LENGTH: _Class(400, "invalid_request_error", "context_length_exceeded"),
    RefusalKind.OVERLOADED: _Class(429, "rate_limit_error", "server_overloaded"),
    RefusalKind.UNAVAILABLE: _Class(503, "server_error", "service_unavailable"),
    RefusalKind.TOO_LARGE: _Class(413, "invalid_request_error", "request_too_large"),
    RefusalKind.UNSUPPORTED_MEDIA_TYPE: _Class(415, "invalid_request_error", "unsupported_media_type"),
    RefusalKind.NOT_FOUND: _Class(404, "invalid_request_error", "not_found"),
    RefusalKind.METHOD_NOT_ALLOWED: _Class(405, "invalid_request_error", "method_not_allowed"),
    RefusalKind.MALFORMED_HTTP: _Class(400, "invalid_request_error", "malformed_http"),
    RefusalKind.HEADERS_TOO_LARGE: _Class(431, "invalid_request_error", "headers_too_large"),
}

_FAULT: Final = _Class(500, "server_error", None)


class OpenAIDialect:
    """Answers are assembled as the document has them, and put into OpenAI's shape here."""

    requests = RequestModel(DialectName.OPENAI, openai_models.ChatCompletionRequest)
    rules = rules_of(DialectName.OPENAI)

    def completion(self, completion: models.ChatCompletion) -> msgspec.Struct:
        return openai_models.ChatCompletion(
            id=completion.id,
            object=completion.object,
            created=completion.created,
            model=completion.model,
            choices=[_choice(choice) for choice in completion.choices],
            usage=_usage(completion.usage),
        )

    def stream(self, request: models.ChatCompletionRequest, *, full_text: bool) -> StreamForm:
        options = given(request.stream_options)
        return _OpenAIStream(has_usage_chunk=options is not None and options.include_usage is True)

    def error(self, error: Exception) -> WireError:
        kind = _ERRORS[error.kind] if isinstance(error, RequestRefused) else _FAULT
        param = error.field if isinstance(error, RequestRefused) else None
        particulars = openai_models.OpenAIError(message=error_text(error), type=kind.type, param=param, code=kind.code)
        return WireError(kind.status, openai_models.OpenAIErrorBody(error=particulars), error_headers(error))

    def stream_error(self, error: Exception) -> msgspec.Struct:
        return self.error(error).body


def _choice(choice: models.Choice) -> openai_models.Choice:
    message = choice.message
    return openai_models.Choice(
        index=choice.index,
        message=openai_models.AssistantMessage(
            role=message.role,
            content=None if message.tool_calls and not message.content else message.content,
            refusal=None,
            reasoning_content=message.reasoning_content,
            tool_calls=message.tool_calls or UNSET,
        ),
        logprobs=choice.logprobs,
        finish_reason=choice.finish_reason,
    )


def _usage(usage: models.Usage) -> openai_models.Usage:
    return openai_models.Usage(
        prompt_tokens=usage.prompt_tokens,
        prompt_tokens_details=usage.prompt_tokens_details,
        completion_tokens=usage.completion_tokens,
        completion_tokens_details=usage.completion_tokens_details,
        total_tokens=usage.total_tokens,
    )


class _OpenAIStream:
    has_full_text = False

    def __init__(self, *, has_usage_chunk: bool) -> None:
        self.has_usage_chunk = has_usage_chunk

    def opening(self, chunk: models.ChatCompletionChunk) -> msgspec.Struct:
        return self._chunk(chunk, is_opening=True)

    def chunk(self, chunk: models.ChatCompletionChunk) -> msgspec.Struct:
        return self._chunk(chunk, is_opening=False)

    def _chunk(self, chunk: models.ChatCompletionChunk, *, is_opening: bool) -> openai_models.ChatCompletionChunk:
        usage = given(chunk.usage) if not chunk.choices else None
        return openai_models.ChatCompletionChunk(
            id=chunk.id,
            object=chunk.object,
            created=chunk.created,
            model=chunk.model,
            usage=(None if usage is None else _usage(usage)) if self.has_usage_chunk else UNSET,
            choices=[_chunk_choice(choice, is_opening=is_opening) for choice in chunk.choices],
        )


def _chunk_choice(choice: models.ChunkChoice, *, is_opening: bool) -> openai_models.ChunkChoice:
    delta = choice.delta
    return openai_models.ChunkChoice(
        index=choice.index,
        delta=openai_models.ChunkDelta(
            role=delta.role if is_opening else UNSET,
            content=delta.content if is_opening or delta.content else UNSET,
            reasoning_content=delta.reasoning_content,
            tool_calls=delta.tool_calls,
        ),
        logprobs=choice.logprobs,
        finish_reason=choice.finish_reason,
    )
