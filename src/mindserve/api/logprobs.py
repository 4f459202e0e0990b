"""The engine's log-probabilities in the words of the contract."""

from __future__ import annotations

from collections.abc import Sequence

from mindserve.api._generated.models import TokenLogprob, TopLogprob
from mindserve_engine.types import TokenLogprobs


class LogprobWriter:
    """Writes entries for one vocabulary."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        """``pieces``: the bytes of each token, by its id."""
        self._pieces = pieces

    def entries(self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs]) -> list[TokenLogprob]:
        """One entry per token. A token that is part of a character has its real bytes, and U+FFFD as text."""
        return [self._entry(token_id, one) for token_id, one in zip(token_ids, logprobs, strict=True)]

    def _entry(self, token_id: int, one: TokenLogprobs) -> TokenLogprob:
        text, data = self._spell(token_id)
        top = zip(one.top_token_ids, one.top_logprobs, strict=True)
        return TokenLogprob(
            token=text,
            logprob=one.logprob,
            bytes=data,
            top_logprobs=[self._top(token_id, logprob) for token_id, logprob in top],
        )

    def _top(self, token_id: int, logprob: float) -> TopLogprob:
        text, data = self._spell(token_id)
        return TopLogprob(token=text, logprob=logprob, bytes=data)

    def _spell(self, token_id: int) -> tuple[str, list[int]]:
        """Ids beyond the tokenizer's vocabulary (padded models have them) are nothing."""
        piece = self._pieces[token_id] if token_id < len(self._pieces) else b""
        return piece.decode("utf-8", "replace"), list(piece)
