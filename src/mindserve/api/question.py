"""From a body to the prompt and the media of a request. What needs no fetch is refused before anything is fetched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from mindserve.api._generated.models import ChatCompletionRequest
from mindserve.api.answers import answer_format
from mindserve.api.capabilities import check_capabilities, check_model
from mindserve.api.checks import check_request
from mindserve.api.decode import decode_request
from mindserve.api.dialect import Dialect
from mindserve.api.lower import TemplateInput, check_prompt_length, template_input
from mindserve.api.media_parts import take_media_parts
from mindserve.api.server import Server
from mindserve.chat.media.budget import Lease
from mindserve.chat.media.refs import MediaRef, media_refs
from mindserve.chat.placeholders import with_media
from mindserve_engine.types import MediaItem, MediaKind

INLINE_BODY_BYTES: Final = 32 * 1024
"""Longer bodies are decoded by a worker, so that the event loop is not held up."""

SHORT_BODY_BYTES: Final = 1024 * 1024
"""Longer ones wait for the one worker of what is long."""


class Question(NamedTuple):
    """A checked request."""

    chat: ChatCompletionRequest
    template: TemplateInput
    refs: list[MediaRef]
    """Its media; emptied when they are taken."""
    places: tuple[MediaPlace, ...]
    """Of its media."""
    is_long: bool
    """Its text is."""


class MediaPlace(NamedTuple):
    """Where the client wrote an item."""

    kind: MediaKind
    field: str


class Prompt(NamedTuple):
    """What the model is given."""

    token_ids: list[int]
    media: tuple[MediaItem, ...]


async def read_question(body: bytes, server: Server, dialect: Dialect) -> Question:
    """Raises ``RequestRefused``."""

    def decode() -> Question:
        settings = server.settings
        chat = decode_request(body, dialect.requests, max_json_depth=settings.max_json_depth)
        check_model(chat, settings)
        check_request(chat, dialect.rules, settings)
        check_capabilities(chat, settings, server.engine.info, family=answer_format(chat, server).family)
        parts = take_media_parts(chat)
        refs = media_refs(parts, server.media.limits)
        return Question(
            chat,
            template_input(chat),
            refs,
            tuple(MediaPlace(ref.kind, f"messages[{ref.i}].content[{ref.j}]") for ref in refs),
            is_long=len(body) - sum(len(part.text) for part in parts) > SHORT_BODY_BYTES,
        )

    if len(body) <= INLINE_BODY_BYTES:
        return decode()
    return await server.prompts.run(decode, is_long=len(body) > SHORT_BODY_BYTES)


async def prompt_of(question: Question, server: Server, lease: Lease) -> Prompt:
    """Text first: media are fetched for a prompt whose text fits and has a place for each. ``lease`` is what decoded
    media count towards. Raises ``RequestRefused``."""
    info = server.engine.info
    ids = await server.prompts.render(
        question.template.messages,
        tools=question.template.tools,
        template_kwargs=question.template.template_kwargs,
        media=info.media,
        check_length=_length_check(server),
        is_long=question.is_long,
    )
    if info.media is None or not question.refs:
        return Prompt(ids, ())
    taken = await server.media.take(question.refs, info.media, lease)
    sizes = [(place, item.num_tokens) for place, item in zip(question.places, taken, strict=True)]
    _length_check(server, sizes)(len(ids) + sum(num_tokens - 1 for _, num_tokens in sizes))
    return Prompt(*with_media(ids, [place.kind for place in question.places], taken, info.media))


def _length_check(server: Server, sizes: Sequence[tuple[MediaPlace, int]] = ()) -> Callable[[int], None]:
    media = ", ".join(f"{num_tokens} for the {place.kind} in {place.field}" for place, num_tokens in sizes)
    return lambda num_tokens: check_prompt_length(num_tokens, server.settings, server.engine.info, media=media)
