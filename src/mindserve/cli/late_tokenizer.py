"""A tokenizer that is handed out before it is loaded, so that the server answers health checks meanwhile."""

from __future__ import annotations

from typing import Any, cast

from mindserve.chat.tokenizer import ChatTokenizer


class LateTokenizer:
    """Behaves as the loaded tokenizer once ``set`` was called. Nobody uses it earlier: the engine is not ready."""

    def __init__(self) -> None:
        self._loaded: ChatTokenizer | None = None

    @property
    def is_set(self) -> bool:
        return self._loaded is not None

    def set(self, tokenizer: ChatTokenizer) -> None:
        self._loaded = tokenizer

    def as_tokenizer(self) -> ChatTokenizer:
        """Itself, under the type it stands in for."""
        return cast("ChatTokenizer", self)

    def __getattr__(self, name: str) -> Any:
        if self._loaded is None:
            raise AttributeError(f"{name}: the tokenizer is not loaded yet")
        return getattr(self._loaded, name)
