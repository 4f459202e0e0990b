"""An engine and its tokenizer, started side by side and ready together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from mindserve.chat.tokenizer import ChatTokenizer, check_media
from mindserve.cli.ending import in_daemon_thread
from mindserve.cli.engine_options import EngineChoice
from mindserve.cli.late_tokenizer import LateTokenizer
from mindserve.cli.tokenizers import load_engine_tokenizer
from mindserve.config.settings import ModelTypeSettings
from mindserve_engine.interface import Engine, Generation
from mindserve_engine.model_folder import media_placeholders
from mindserve_engine.types import (
    Capability,
    EngineHealth,
    EngineInfo,
    EngineState,
    EngineStats,
    GenerationRequest,
    Vocabulary,
)


class JointEngine:
    """Implements ``interface.Engine`` over another engine; not ready before the tokenizer is."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: LateTokenizer,
        choice: EngineChoice,
        model_types: Mapping[str, ModelTypeSettings],
    ) -> None:
        """``model_types``: see ``load_engine_tokenizer``."""
        self._model_types = model_types
        self._engine = engine
        self._tokenizer = tokenizer
        self._choice = choice

    async def start(self) -> None:
        """Raises ``EngineError`` or ``StartupError``, whichever part fails first."""
        loading = asyncio.create_task(in_daemon_thread(self._load_tokenizer, name="load-tokenizer"))
        starting = asyncio.create_task(self._engine.start())
        try:
            await asyncio.wait((loading, starting), return_when=asyncio.FIRST_EXCEPTION)
            for part in (loading, starting):
                if part.done():
                    part.result()
        finally:
            loading.cancel()
            starting.cancel()
            await asyncio.gather(loading, starting, return_exceptions=True)
        tokenizer, is_checked = loading.result()
        if self.info.media is not None and not is_checked:
            check_media(tokenizer, self.info.media)
        self._tokenizer.set(tokenizer)
        if Capability.GRAMMAR in self.info.capabilities and self.info.eos_token_ids:
            self._engine.learn(tokenizer.vocabulary(self.info.eos_token_ids))

    def _load_tokenizer(self) -> tuple[ChatTokenizer, bool]:
        """And whether its template has been held against the media that the model's files tell of: what is wrong with
        it is told while the weights load, which may take minutes. Blocks."""
        tokenizer = load_engine_tokenizer(self._choice, self._model_types)
        told = media_placeholders(self._choice.options.model_path) if self._choice.name == "native" else None
        if told is not None:
            check_media(tokenizer, told)
        return tokenizer, told is not None

    def learn(self, vocabulary: Vocabulary) -> None:
        """Done at the start."""

    @property
    def info(self) -> EngineInfo:
        return self._engine.info

    async def check_grammar(self, grammar: str) -> None:
        await self._engine.check_grammar(grammar)

    async def admit(self, request: GenerationRequest) -> Generation:
        return await self._engine.admit(request)

    def health(self) -> EngineHealth:
        health = self._engine.health()
        if health.state is EngineState.READY and not self._tokenizer.is_set:
            return EngineHealth(state=EngineState.LOADING, reason="loading the tokenizer")
        return health

    def stats(self) -> EngineStats:
        return self._engine.stats()

    async def close(self) -> None:
        await self._engine.close()
