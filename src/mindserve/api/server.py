"""The parts of one running server, for its handlers."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.handlers.base import BaseRouteHandler

from mindserve.api.dialect import DIALECT_HEADER, Dialect, dialect_asked
from mindserve.api.inflight import LAST_WORDS_S
from mindserve.api.lifecycle import Lifecycle
from mindserve.chat.media.budget import ByteBudget
from mindserve.chat.media.intake import MediaIntake
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
    """Of requests that ask for none."""
    lifecycle: Lifecycle
    metrics: Metrics
    held_bytes: ByteBudget
    """What all requests hold of large bodies and of media."""
    media: MediaIntake
    unix_time: Callable[[], float] = time.time
    completion_ids: Iterator[str] = field(default_factory=_completion_ids)
    call_ids: Iterator[str] = field(default_factory=_call_ids)
    random_seed: Callable[[], int] = _random_seed
    started_at: int = field(default_factory=lambda: int(time.time()))
    last_words_s: float = LAST_WORDS_S


def dialect_of(request: Request[Any, Any, State]) -> Dialect:
    """What the request asks for, else the server's own. Raises ``RequestRefused``."""
    return dialect_asked(request.headers.getall(DIALECT_HEADER, [])) or server_of(request).dialect


def require_known_dialect(connection: ASGIConnection[Any, Any, Any, State], handler: BaseRouteHandler) -> None:
    """A guard for handlers whose answer is the same in every dialect. Raises ``RequestRefused``."""
    dialect_asked(connection.headers.getall(DIALECT_HEADER, []))


def server_of(request: Request[Any, Any, State]) -> Server:
    server: Server = request.app.state.server
    return server
