"""The server process, from sockets that are bound to the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from typing import Final

import msgspec
from rich.console import Console

from mindserve.api.app import create_app
from mindserve.api.lifecycle import Lifecycle
from mindserve.chat.media.limits import storage_figures
from mindserve.cli.ending import EXIT_ENGINE_LOST
from mindserve.cli.engine_options import EngineChoice
from mindserve.cli.extras import not_installed
from mindserve.cli.joint_start import JointEngine
from mindserve.cli.late_tokenizer import LateTokenizer
from mindserve.cli.planes import Plane, plane_servers
from mindserve.cli.progress import progress_step
from mindserve.cli.ready import ready_lines
from mindserve.cli.signals import StopSignals
from mindserve.config.settings import ServeSettings
from mindserve.errors import EngineDidNotStart, StartupError
from mindserve.observe.logs import fields
from mindserve_engine.interface import Engine, EngineError, EngineNotStarted
from mindserve_engine.registry import create_engine
from mindserve_engine.types import EngineInfo, EngineState

_LOG: Final = logging.getLogger(__name__)
_LOOK_EVERY_S: Final = 0.2
_CLOSE_TIMEOUT_S: Final = 10.0
"""Time the engine gets to free the device; its process ends with this one anyway."""


class ServingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All that was decided before the event loop runs."""

    settings: ServeSettings
    engine: EngineChoice
    planes: tuple[Plane, ...]
    """The business plane first."""
    ends_with_engine: bool = False
    """A started engine that is lost for good is the end of the server, for whatever supervises it."""


async def run_server(plan: ServingPlan, console: Console) -> int:
    """Serve until a signal; returns the exit code. Health answers from the start, while the model loads.

    Raises ``StartupError`` when the engine or the tokenizer cannot start.
    """
    exit_code = 0
    signals = StopSignals()
    tokenizer = LateTokenizer()
    engine = JointEngine(_create_engine(plan.engine), tokenizer, plan.engine, plan.settings.model_types)
    app = create_app(engine=engine, tokenizer=tokenizer.as_tokenizer(), settings=plan.settings)
    servers = plane_servers(plan.planes, app, plan.settings)
    serving = [
        asyncio.create_task(server.serve(sockets=[plane.bound]))
        for server, plane in zip(servers, plan.planes, strict=True)
    ]
    try:
        if await _became_ready(engine, signals, console):
            gc.collect()
            gc.freeze()  # the libraries and the vocabulary stay: collections during requests need not look at them
            if engine.info.media is not None:
                await app.state.server.media.start(engine.info.media)
            _report_storage(plan.settings, plan.engine, engine.info)
            print(*ready_lines(plan.planes, plan.settings, engine.info), sep="\n", flush=True)  # noqa: T201 - to a person
            if await _is_lost(engine, signals, ends_with_engine=plan.ends_with_engine):
                _LOG.error("the engine is lost: the server ends")
                exit_code = EXIT_ENGINE_LOST
            else:
                await _drain(app.state.lifecycle, signals)
    finally:
        for server in servers:
            server.stop(force=signals.force.is_set())
        await asyncio.gather(*serving)
        await _close(engine)
    return exit_code or signals.exit_code


def _create_engine(choice: EngineChoice) -> Engine:
    try:
        return create_engine(choice.name, choice.options)
    except ImportError as error:
        raise not_installed(error) from error


async def _became_ready(engine: Engine, signals: StopSignals, console: Console) -> bool:
    """Start the engine; False: a signal came first. Raises ``StartupError``, of which ``EngineDidNotStart``."""
    starting = asyncio.create_task(engine.start())
    watching = asyncio.create_task(_show_loading(engine, console))
    stopped = asyncio.create_task(signals.stop.wait())
    try:
        await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            return False
        await starting
    except EngineNotStarted as error:
        raise EngineDidNotStart(str(error)) from error
    except EngineError as error:
        raise StartupError(str(error)) from error
    finally:
        await _cancel(starting, watching, stopped)
    return True


def _report_storage(settings: ServeSettings, engine: EngineChoice, info: EngineInfo) -> None:
    """The document asks the operator to reserve disk space for media: say that it is memory here, and how much."""
    if info.media is not None:
        figures = storage_figures(settings.media, settings.max_connections)
        _LOG.info("storage of media", extra=fields(**figures, **_engine_storage(engine)))


def _engine_storage(engine: EngineChoice) -> dict[str, int]:
    """MiB that the processes of the native engine may hold; the scripted one has none."""
    if engine.name != "native":
        return {}
    options = engine.options
    return {"engine_mib": options.max_media_mb, "embeddings_mib": options.num_instances * options.media_cache_mb}


async def _show_loading(engine: Engine, console: Console) -> None:
    with progress_step(console, "loading the model") as step:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            health = engine.health()
            if health.state is EngineState.LOADING:
                step.update(health.progress, health.reason)


async def _is_lost(engine: Engine, signals: StopSignals, *, ends_with_engine: bool) -> bool:
    """Wait for a signal or, where the server is to end with it, for the engine to be lost."""
    while ends_with_engine and not signals.stop.is_set():
        if engine.health().state is EngineState.FAILED:
            return True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(signals.stop.wait(), _LOOK_EVERY_S)
    await signals.stop.wait()
    return False


async def _drain(lifecycle: Lifecycle, signals: StopSignals) -> None:
    """Let running requests end, up to the drain timeout or the second signal."""
    draining = asyncio.create_task(lifecycle.drain())
    forced = asyncio.create_task(signals.force.wait())
    try:
        await asyncio.wait({draining, forced}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _cancel(draining, forced)


async def _cancel(*tasks: asyncio.Task[object]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _close(engine: Engine) -> None:
    try:
        async with asyncio.timeout(_CLOSE_TIMEOUT_S):
            await engine.close()
    except TimeoutError:
        _LOG.warning("the engine did not close in time")
