"""The engine's errors in the server's words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from mindserve.errors import EngineFault, RefusalKind, RequestRefused
from mindserve_engine.interface import (
    EngineUnavailable,
    GenerationFailed,
    PromptTooLong,
    QueueFull,
    RequestInvalid,
)

_WIRE_FIELDS: Final = {
    "adapter": "model",
    "beam_width": "use_beam_search",
    "media": "messages",
    "num_logprobs": "top_logprobs",
    "num_sequences": "n",
    "prompt_token_ids": "messages",
}
"""What a client calls the fields of an engine's request, where the names differ."""


@contextmanager
def engine_errors(media_fields: Sequence[str] = ()) -> Iterator[None]:
    """Raise what the engine raises as ``RequestRefused`` or ``EngineFault``. ``media_fields``: what a client calls the
    request's media, in their order."""
    try:
        yield
    except QueueFull as error:
        raise RequestRefused(
            f"the server is busy: {error}", kind=RefusalKind.OVERLOADED, retry_after_s=error.retry_after_s
        ) from error
    except EngineUnavailable as error:
        raise RequestRefused(
            f"the model cannot be used now: {error}",
            kind=RefusalKind.UNAVAILABLE,
            retry_after_s=error.retry_after_s,
        ) from error
    except PromptTooLong as error:
        raise RequestRefused(
            f"the maximum context length is {error.limit} tokens of prompt ({error.limit_name}); "
            f"the prompt has {error.num_tokens} tokens",
            field="messages",
            kind=RefusalKind.CONTEXT_LENGTH,
        ) from error
    except RequestInvalid as error:
        fields = _WIRE_FIELDS | {f"media[{number}]": field for number, field in enumerate(media_fields)}
        field = fields.get(error.field, error.field)
        raise RequestRefused(f"{field}: {error.reason}", field=field) from error
    except GenerationFailed as error:
        raise EngineFault(f"the engine could not finish the request: {error}") from error
