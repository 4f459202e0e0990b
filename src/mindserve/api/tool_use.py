"""Whether tools play a part in a request."""

from __future__ import annotations

from mindserve.api._generated.models import ChatCompletionRequest
from mindserve.api.presence import filled


def may_call_tools(request: ChatCompletionRequest) -> bool:
    """The model is told of tools and may call them."""
    return filled(request.tools) and request.tool_choice != "none"
