"""How many sequences a request asks for, how they come about, and what is told of their probabilities. Pure."""

from __future__ import annotations

import msgspec

from mindserve.api._generated.models import ChatCompletionRequest
from mindserve.api.presence import given


class SequenceWishes(msgspec.Struct, frozen=True, kw_only=True):
    """Readings R7 (``n``, ``best_of``, ``use_beam_search``) and R11 (``logprobs``, ``top_logprobs``) applied."""

    num_returned: int
    beam_width: int
    """0 without beam search."""
    num_logprobs: int | None
    """Likeliest tokens to be shown at each position; ``None``: the client does not want log-probabilities."""
    ranked: bool
    """The sequences are sorted by their log-probabilities: the server needs them, whether the client does or not."""


def sequence_wishes(request: ChatCompletionRequest) -> SequenceWishes:
    """What a checked request asks for."""
    n, best_of = given(request.n) or 1, given(request.best_of)
    has_beams = given(request.use_beam_search) is True
    num_returned = n if has_beams else best_of or n
    return SequenceWishes(
        num_returned=num_returned,
        beam_width=max(n, best_of or n) if has_beams else 0,
        num_logprobs=_num_logprobs(request),
        # a stream gives out its sequences as they grow, a search gives them out in order
        ranked=num_returned > 1 and not has_beams and given(request.stream) is not True,
    )


def _num_logprobs(request: ChatCompletionRequest) -> int | None:
    wanted, num_top = given(request.logprobs), given(request.top_logprobs)
    if wanted is None:
        return num_top
    return (num_top or 0) if wanted else None
