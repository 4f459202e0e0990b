"""Placeholders of media in a prompt: found, held against the parts of the messages, and repeated.

A template writes one placeholder for an item, a control token that no text of a request can spell. The model wants one
for each token that it makes of the item.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

from mindserve.errors import RequestRefused
from mindserve_engine.types import MediaItem, MediaKind, MediaModel

_WORD: Final = f"w{secrets.token_hex(8)}"
"""No text of a request holds it: it is not guessable."""
_KINDS: Final = frozenset(kind.value for kind in MediaKind)

Message = dict[str, Any]


class Sized(Protocol):
    """A decoded item."""

    @property
    def num_tokens(self) -> int: ...

    def at(self, start: int) -> MediaItem:
        """The item with its first placeholder there."""


def check_placeholders(
    ids: list[int],
    messages: list[Message],
    model: MediaModel,
    *,
    render: Callable[[list[Message]], str],
    encode: Callable[[str], list[int]],
) -> None:
    """Raise ``RequestRefused`` naming the first part with media that has no placeholder of its own in the prompt.

    ``messages``: as the template is given them. ``render`` gives marked text of others, ``encode`` its ids; they are
    needed for the naming alone, and ``render`` may raise what the template raises.
    """
    kinds = [kind for _, _, kind in _media_parts(messages)]
    if placeholder_places(ids, kinds, model) is not None:
        return
    raise _refusal(_first_without(messages, model, render, encode))


def placeholder_places(ids: list[int], kinds: Sequence[MediaKind], model: MediaModel) -> list[int] | None:
    """Where each placeholder stands in a prompt that has one for an item; ``None``: they are others than ``kinds``, in
    this order."""
    for kind in MediaKind:
        token_id = model.token_id(kind)
        if token_id is not None and ids.count(token_id) != kinds.count(kind):
            return None
    places: list[int] = []
    for kind in kinds:
        token_id = model.token_id(kind)
        begin = places[-1] + 1 if places else 0
        try:
            places.append(ids.index(-1 if token_id is None else token_id, begin))
        except ValueError:
            return None
    return places


def with_media(
    ids: list[int], kinds: Sequence[MediaKind], media: Sequence[Sized], model: MediaModel
) -> tuple[list[int], tuple[MediaItem, ...]]:
    """The prompt with every placeholder repeated, and the items at their places. ``ids`` have been checked."""
    places = placeholder_places(ids, kinds, model)
    assert places is not None
    whole: list[int] = []
    items = []
    begin = 0
    for place, item in zip(places, media, strict=True):
        whole += ids[begin:place]
        items.append(item.at(len(whole)))
        whole += ids[place : place + 1] * item.num_tokens
        begin = place + 1
    return whole + ids[begin:], tuple(items)


def _media_parts(messages: list[Message]) -> Iterator[tuple[int, int, MediaKind]]:
    for i, message in enumerate(messages):
        content = message["content"]
        for j, part in enumerate(content if isinstance(content, list) else ()):
            if part["type"] in _KINDS:
                yield i, j, MediaKind(part["type"])


def _first_without(
    messages: list[Message],
    model: MediaModel,
    render: Callable[[list[Message]], str],
    encode: Callable[[str], list[int]],
) -> tuple[int, int, MediaKind] | None:
    """The same conversation with a word before and a word behind each item; between them is what the template makes of
    it. ``None``: each has one, so there are others beside them, or they stand in another order."""
    text = render([_with_words(message, i) for i, message in enumerate(messages)])
    for i, j, kind in _media_parts(messages):
        before, after = _words(i, j)
        _, found, rest = text.partition(before)
        inside, _, _ = rest.partition(after)
        if not found or encode(inside).count(model.token_id(kind) or -1) != 1:
            return i, j, kind
    return None


def _with_words(message: Message, i: int) -> Message:
    content = message["content"]
    if isinstance(content, str):
        return message
    parts: list[dict[str, Any]] = []
    for j, part in enumerate(content):
        if part["type"] in _KINDS:
            before, after = ({"type": "text", "text": word} for word in _words(i, j))
            parts += [before, part, after]
        else:
            parts.append(part)
    return {**message, "content": parts}


def _words(i: int, j: int) -> tuple[str, str]:
    return f"{_WORD}b{i}p{j}e", f"{_WORD}a{i}p{j}e"


def _refusal(missing: tuple[int, int, MediaKind] | None) -> RequestRefused:
    if missing is None:
        text = "messages: the model's chat template does not write one placeholder for each item, in their order"
        return RequestRefused(text, field="messages")
    i, j, kind = missing
    field = f"messages[{i}].content[{j}]"
    return RequestRefused(f"{field}: the model's chat template has no place for {kind} input here", field=field)
