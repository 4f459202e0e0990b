"""Fields that only requests of the ``openai`` dialect have (reading D12). Pure."""

from __future__ import annotations

from mindserve.api._generated import openai_models
from mindserve.api._generated.models import ChatCompletionRequest
from mindserve.api.presence import given


def logit_bias(request: ChatCompletionRequest) -> dict[str, float]:
    """By token id, as the request writes it."""
    return (given(request.logit_bias) or {}) if isinstance(request, openai_models.ChatCompletionRequest) else {}


def max_calls(request: ChatCompletionRequest) -> int | None:
    """How many tool calls a sequence may hold; None: any number."""
    if not isinstance(request, openai_models.ChatCompletionRequest) or request.parallel_tool_calls is not False:
        return None
    return 1
