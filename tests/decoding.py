"""Token ids back to text, for tests that look at prompts."""

from __future__ import annotations

from collections.abc import Sequence

from mindserve.chat.detokenize import Detokenizer
from mindserve.chat.tokenizer import ChatTokenizer


def whole_text(tokenizer: ChatTokenizer, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
    """All ids at once, as a ``Detokenizer`` gives them in pieces."""
    detokenizer = Detokenizer(tokenizer, skip_special_tokens=skip_special_tokens)
    return detokenizer.feed(token_ids) + detokenizer.finish()
