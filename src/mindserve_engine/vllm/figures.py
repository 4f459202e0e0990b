"""A logger of vLLM's that logs nothing."""

from __future__ import annotations

from typing import Any

from vllm.v1.metrics.loggers import StatLoggerBase


class NoFigures(StatLoggerBase):
    """That there is one makes vLLM stamp its steps (``clock`` reads the stamps), without a word in its log."""

    def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
        pass

    def record(self, *arguments: Any, **figures: Any) -> None:
        pass

    def log_engine_initialized(self) -> None:
        pass
