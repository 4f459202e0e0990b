"""The parts of one running server, for its handlers."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from litestar import Request
from litestar.datastructures import State

from mindserve.api.dialect import Dialect
from mindserve.api.inflight import LAST_WORDS_S
from mindserve.api.lifecycle import Lifecycle
from mindserve.chat.prompt import PromptPool
from mindserve.chat.tokenizer import ChatTokenizer
from mindserve.config.settings import ServeSettings
from mindserve.observe.metrics import Metrics
from mindserve_engine.interface import Engine


def _completion_ids() -> Iterator[str]:
    return (f"endpoint_common_{number}" for number in itertools.count())


def _call_ids() -> Iterator[str]:
    return (f"call_{secrets.token_hex(12)}" for _ in itertools.count())


def _random_seed() -> int:
    return secrets.randbits(64)


@dataclass(frozen=True, slots=True)
class Server:
    """Made once by ``create_app``. What is not deterministic (time, ids, seeds) is a field that can be replaced, and so
    are times that nobody configures."""

    engine: Engine
    tokenizer: ChatTokenizer
    prompts: PromptPool
    settings: ServeSettings
    dialect: Dialect
    lifecycle: Lifecycle
    metrics: Metrics
    unix_time: Callable[[], float] = time.time
    completion_ids: Iterator[str] = field(default_factory=_completion_ids)
    call_ids: Iterator[str] = field(default_factory=_call_ids)
    random_seed: Callable[[], int] = _random_seed
    started_at: int = field(default_factory=lambda: int(time.time()))
    last_words_s: float = LAST_WORDS_S


def server_of(request: Request[Any, Any, State]) -> Server:
    server: Server = request.app.state.server
    return server
