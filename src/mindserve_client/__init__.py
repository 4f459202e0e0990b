"""SDK for servers of this API: typed, synchronous and asynchronous, in both dialects.

    with Client("http://127.0.0.1:1025") as client:
        answer = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hello"}])

``models`` has what requests and answers are made of, ``openai_models`` what differs in the openai dialect.
"""

from mindserve_client._generated import models, openai_models
from mindserve_client._generated.params import ChatCompletionParams, ChatMessageParam
from mindserve_client.client import AsyncClient, Client
from mindserve_client.errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    BadRequest,
    ContentTooLarge,
    ErrorDetails,
    EventTooLarge,
    Fault,
    GenerationFailed,
    HeadersTooLarge,
    InvalidRequest,
    InvalidResponse,
    MethodNotAllowed,
    MindserveError,
    NotFound,
    StreamFailed,
    StreamIncomplete,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UnsupportedMediaType,
    ValidationFailed,
)
from mindserve_client.options import Tls
from mindserve_client.parts import audio, image, input_audio, text, video
from mindserve_client.sse import Event, EventDecoder
from mindserve_client.stream import AsyncStream, Stream

__all__ = [
    "APIConnectionError",
    "APIStatusError",
    "APITimeoutError",
    "AsyncClient",
    "AsyncStream",
    "BadRequest",
    "ChatCompletionParams",
    "ChatMessageParam",
    "Client",
    "ContentTooLarge",
    "ErrorDetails",
    "Event",
    "EventDecoder",
    "EventTooLarge",
    "Fault",
    "GenerationFailed",
    "HeadersTooLarge",
    "InvalidRequest",
    "InvalidResponse",
    "MethodNotAllowed",
    "MindserveError",
    "NotFound",
    "Stream",
    "StreamFailed",
    "StreamIncomplete",
    "Tls",
    "TooManyRequests",
    "Unauthorized",
    "Unavailable",
    "UnsupportedMediaType",
    "ValidationFailed",
    "audio",
    "image",
    "input_audio",
    "models",
    "openai_models",
    "text",
    "video",
]
