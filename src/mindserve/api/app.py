"""The application: routes, error shapes, limits."""

from __future__ import annotations

import time
from typing import Final

from litestar import Litestar
from litestar.config.cors import CORSConfig
from litestar.datastructures import State

from mindserve.api.chat import create_chat_completion
from mindserve.api.dialect import dialect_named
from mindserve.api.edge import EdgeApp
from mindserve.api.exceptions import EXCEPTION_HANDLERS
from mindserve.api.health import get_health, get_liveness, get_readiness
from mindserve.api.lifecycle import Lifecycle
from mindserve.api.metrics import engine_figures, get_metrics
from mindserve.api.models import get_model, list_models
from mindserve.api.openapi import get_spec_json, get_spec_yaml
from mindserve.api.pages.handlers import get_docs, get_playground
from mindserve.api.server import Server
from mindserve.chat.media.budget import ByteBudget
from mindserve.chat.media.intake import MediaIntake
from mindserve.chat.prompt import PromptPool
from mindserve.chat.tokenizer import ChatTokenizer
from mindserve.config.settings import ServeSettings
from mindserve.observe.media import MediaTally
from mindserve.observe.metrics import Metrics
from mindserve.observe.request_id import RESPONSE_HEADER
from mindserve_engine.interface import Engine

HANDLERS: Final = (
    create_chat_completion,
    list_models,
    get_model,
    get_health,
    get_liveness,
    get_readiness,
    get_metrics,
    get_spec_yaml,
    get_spec_json,
)
PAGES: Final = (get_playground, get_docs)


def create_app(*, engine: Engine, tokenizer: ChatTokenizer, settings: ServeSettings) -> Litestar:
    """The ASGI application over ``engine``, which its owner starts and closes.

    ``app.state.lifecycle`` is the ``Lifecycle`` for draining.
    """
    held_bytes, media = ByteBudget(settings.media.max_in_flight_bytes), MediaTally()
    return app_of(
        Server(
            engine=engine,
            tokenizer=tokenizer,
            prompts=PromptPool(
                tokenizer,
                num_workers=settings.tokenizer_workers,
                max_waiting=settings.max_waiting,
                timeout_s=settings.tokenizer_timeout_s,
            ),
            settings=settings,
            dialect=dialect_named(settings.dialect),
            lifecycle=Lifecycle(drain_timeout_s=settings.drain_timeout_s),
            metrics=Metrics(
                model_names=(settings.model_name, *settings.lora_names),
                engine_figures=lambda: engine_figures(engine.stats()),
                media=media,
                clock=time.monotonic,
            ),
            held_bytes=held_bytes,
            media=MediaIntake(settings.media, held_bytes, tally=media),
        )
    )


def app_of(server: Server) -> Litestar:
    """The application over parts that are already put together."""
    return EdgeApp(
        route_handlers=[*HANDLERS, *(PAGES if server.settings.browser_pages else ())],
        exception_handlers=EXCEPTION_HANDLERS,
        openapi_config=None,
        cors_config=_cors(server.settings),
        logging_config=None,
        request_max_body_size=server.settings.max_request_bytes,
        on_shutdown=[server.prompts.close, server.media.close],
        state=State({"server": server, "lifecycle": server.lifecycle}),
    )


def _cors(settings: ServeSettings) -> CORSConfig | None:
    """Reading H10."""
    if not settings.cors_allow_origins:
        return None
    return CORSConfig(
        allow_origins=list(settings.cors_allow_origins),
        allow_methods=["GET", "POST"],
        allow_headers=["*"],
        expose_headers=[RESPONSE_HEADER, "Retry-After", "WWW-Authenticate"],
    )
