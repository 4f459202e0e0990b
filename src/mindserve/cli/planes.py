"""Listening sockets and the uvicorn servers behind them. They all serve the same application."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import uvicorn

from mindserve.api.dialect import dialect_named
from mindserve.cli.protocol import PlaneConfig
from mindserve.cli.sockets import base_url
from mindserve.config.listen import Listen
from mindserve.config.settings import ServeSettings

_LAST_WORDS_S: Final = 5
"""Time that responses still being written get once the drain is over."""

_SPARE_CONNECTIONS: Final = 256


class Plane(msgspec.Struct, frozen=True):
    """One bound socket."""

    address: Listen
    bound: socket.socket
    context: ssl.SSLContext | None

    @property
    def url(self) -> str:
        return base_url(self.address, self.bound)


class PlaneServer(uvicorn.Server):
    """A uvicorn server that says when it listens and leaves the signals to this process's own drain."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self, *, force: bool) -> None:
        """Close the socket and the idle connections; ``force`` does not wait for the others."""
        self.should_exit = True
        self.force_exit = self.force_exit or force


def plane_servers(planes: tuple[Plane, ...], app: Any, settings: ServeSettings) -> list[PlaneServer]:
    """One server per plane, in their order. The first one runs the application's start and end."""
    return [_server(plane, app, settings, is_first=number == 0) for number, plane in enumerate(planes)]


def _server(plane: Plane, app: Any, settings: ServeSettings, *, is_first: bool) -> PlaneServer:
    context = plane.context
    config = PlaneConfig(
        app,
        dialect=dialect_named(settings.dialect),
        # Those served and those that wait. Beyond them a connection would only hold memory, but some room is left for
        # requests that are told of a full queue, and for health checks.
        max_connections=settings.max_connections + settings.max_waiting + _SPARE_CONNECTIONS,
        ws="none",
        lifespan="on" if is_first else "off",
        interface="asgi3",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=settings.keep_alive_s,
        timeout_graceful_shutdown=_LAST_WORDS_S,
        ssl_context_factory=None if context is None else lambda config, default: context,
    )
    return PlaneServer(config)
