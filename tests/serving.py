"""A running server for tests: the real application behind a real socket, over an engine that the test chooses.

Server and test share one event loop, so a test sees the engine's and the lifecycle's state directly.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import yaml

from mindserve.api.app import app_of, create_app
from mindserve.api.server import Server
from mindserve.chat.tokenizer import ChatTokenizer, load_tokenizer
from mindserve.cli.planes import Plane, plane_servers
from mindserve.cli.sockets import bind_all
from mindserve.config.listen import Listen
from mindserve.config.settings import ServeSettings
from mindserve_engine.interface import Engine
from mindserve_engine.options import EngineOptions
from mindserve_engine.registry import create_engine
from mindserve_engine.scripted.model import write_model

MODEL = "m"
HELLO = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}
"""The smallest request."""


def chat_body(**fields: Any) -> dict[str, Any]:
    return {**HELLO, **fields}


def prompt_body(text: str, **fields: Any) -> dict[str, Any]:
    """``chat_body`` with ``text`` as the user's message: the scripted replies are chosen by it."""
    return chat_body(messages=[{"role": "user", "content": text}], **fields)


def write_script(folder: Path, script: Any) -> Path:
    path = folder / "script.yaml"
    path.write_text(yaml.safe_dump(script), "utf-8")
    return path


@dataclass(frozen=True)
class Model:
    """An engine that is not started, and its tokenizer."""

    engine: Engine
    tokenizer: ChatTokenizer


def scripted_model(folder: Path, script: Any, **options: Any) -> Model:
    """``script``: replies as the scripted engine reads them."""
    path = write_script(folder, script)
    write_model(path, folder)
    engine = create_engine("scripted", EngineOptions(model_path=path, **options))
    return Model(engine, load_tokenizer(folder))


def make_server(model: Model, settings: ServeSettings, **parts: Any) -> Server:
    """The parts of a server; ``parts`` replace what is not deterministic."""
    server: Server = create_app(engine=model.engine, tokenizer=model.tokenizer, settings=settings).state.server
    return replace(server, **parts)


def numbered_ids(first: int) -> Iterator[str]:
    return (f"endpoint_common_{number}" for number in itertools.count(first))


@dataclass(frozen=True)
class Live:
    """A server that listens."""

    url: str
    port: int
    engine: Engine
    server: Server


@asynccontextmanager
async def running(
    model: Model,
    settings: ServeSettings | None = None,
    *,
    start_engine: bool = True,
    around: Callable[[Any], Any] = lambda app: app,
    **parts: Any,
) -> AsyncIterator[Live]:
    """Serve ``model`` on a free port of the loopback interface until the block ends. ``around`` makes the application
    that is served of the real one; ``parts``: see ``make_server``."""
    settings = settings or ServeSettings(model_name=MODEL)
    server = make_server(model, settings, **parts)
    if start_engine:
        await model.engine.start()
    address = Listen(host="127.0.0.1", port=0)
    (bound,) = bind_all((address,))
    plane = Plane(address, bound, None)
    (web,) = plane_servers((plane,), around(app_of(server)), settings)
    port: int = bound.getsockname()[1]
    serving = asyncio.create_task(web.serve(sockets=[bound]))
    try:
        await web.listening.wait()
        yield Live(plane.url, port, model.engine, server)
    finally:
        web.stop(force=False)
        await serving
        await model.engine.close()


async def post_chat(live: Live, body: Any) -> httpx2.Response:
    """One request on a connection of its own."""
    async with httpx2.AsyncClient(base_url=live.url, timeout=30) as client:
        return await client.post("/v1/chat/completions", json=body)


async def eventually(holds: Callable[[], bool], *, timeout_s: float = 20.0) -> None:
    """Return as soon as ``holds()``; fail if it does not within ``timeout_s``."""
    async with asyncio.timeout(timeout_s):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.002)


def is_idle(live: Live) -> bool:
    """Nothing is left of any request, in the server or in the engine."""
    stats = live.engine.stats()
    return live.server.lifecycle.num_in_flight == 0 and stats.num_running == 0 and stats.num_waiting == 0
