"""From a checked config to a running server: everything that can fail quickly is tried before anything slow."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
from pathlib import Path
from typing import NoReturn

import uvloop
from rich.console import Console

from mindserve.api import observed
from mindserve.cli.ending import leave
from mindserve.cli.engine_options import choose_engine
from mindserve.cli.fetch import fetch_model
from mindserve.cli.planes import Plane
from mindserve.cli.serving import ServingPlan, run_server
from mindserve.cli.sockets import bind_all
from mindserve.cli.tls import tls_contexts
from mindserve.config.listen import listen_addresses
from mindserve.config.load import LoadedConfig
from mindserve.config.lower import log_settings, serve_settings
from mindserve.config.paths import model_place
from mindserve.config.vllm_rules import is_vllm
from mindserve.observe.logs import set_up_logging
from mindserve_engine.user_cache import cache_folder


def start(loaded: LoadedConfig, *, log_level: str | None) -> NoReturn:
    """Serve until a signal ends it and the process with it. Raises ``StartupError``."""
    console = Console(stderr=True)
    _set_up_logs(loaded, log_level)
    _raise_file_limit()
    addresses = listen_addresses(loaded.config, loaded.base)
    contexts = tls_contexts(addresses)
    sockets = bind_all(addresses)
    try:
        plan = serving_plan(loaded, _weights(loaded, console), tuple(map(Plane, addresses, sockets, contexts)))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            leave(runner.run(run_server(plan, console)))
    finally:
        for bound in sockets:
            bound.close()


def serving_plan(loaded: LoadedConfig, weights: Path, planes: tuple[Plane, ...]) -> ServingPlan:
    """An engine over vLLM that is lost for good may leave its devices in a state that only a new process clears."""
    return ServingPlan(
        settings=serve_settings(loaded),
        engine=choose_engine(loaded, weights),
        planes=planes,
        ends_with_engine=is_vllm(loaded.config),
    )


def _weights(loaded: LoadedConfig, console: Console) -> Path:
    place = model_place(loaded.config, loaded.base)
    return place if isinstance(place, Path) else fetch_model(place, cache_folder(os.environ), console)


def _set_up_logs(loaded: LoadedConfig, typed_level: str | None) -> None:
    log = log_settings(loaded, typed_level)
    set_up_logging(level=log.level)
    if not log.requests:
        logging.getLogger(observed.__name__).setLevel(logging.WARNING)


def _raise_file_limit() -> None:
    """Each connection is an open file, and the usual soft limit of 1024 is less than maxLinkNum may ask for."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
