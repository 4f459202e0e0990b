"""What each command does."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable
from typing import Final, NoReturn

from rich.console import Console

from mindserve.api.contract import openapi_json, openapi_yaml
from mindserve.cli.extras import not_installed
from mindserve.cli.fetch import fetch_model
from mindserve.cli.node import run_node
from mindserve.cli.tls import tls_contexts
from mindserve.cli.vllm_checks import check_vllm
from mindserve.config.listen import listen_addresses
from mindserve.config.load import LoadedConfig, load_config
from mindserve.config.overrides import Overrides
from mindserve.config.packaged import CATALOGUE
from mindserve.config.settings import Dialect
from mindserve.errors import StartupError
from mindserve_engine.user_cache import cache_folder


def _serve(arguments: argparse.Namespace) -> NoReturn:
    overrides = Overrides(
        model=arguments.model,
        model_name=arguments.model_name,
        engine=arguments.engine,
        dtype=arguments.dtype,
        device=arguments.device,
        host=arguments.host,
        port=arguments.port,
        api_key_file=arguments.api_key_file,
        browser_pages=arguments.browser_pages,
    )
    loaded = load_config(arguments.config, overrides, os.environ)
    _refuse_other_nodes(loaded)
    _write_notes((*loaded.notes, *check_vllm(loaded, arguments.config, is_to_run=True)))
    _starter()(loaded, log_level=arguments.log_level)


def _refuse_other_nodes(loaded: LoadedConfig) -> None:
    """MindIE starts the same command on every machine; here the others have one of their own."""
    rank = None if loaded.nodes is None else loaded.nodes.own_rank
    if rank:
        raise StartupError(f"this machine has rank {rank} and does not serve: it runs `mindserve node` instead")


def _node(arguments: argparse.Namespace) -> NoReturn:
    loaded = load_config(arguments.config, Overrides(), os.environ)
    _write_notes((*loaded.notes, *check_vllm(loaded, arguments.config, is_to_run=True)))
    run_node(loaded, arguments.rank)


def _starter() -> Callable[..., NoReturn]:
    """``start``, imported when a config is sound: its libraries take a second, and may not be installed."""
    try:
        from mindserve.cli.start import start
    except ImportError as error:
        raise not_installed(error) from error
    return start


def _check_config(arguments: argparse.Namespace) -> int:
    loaded = load_config(arguments.file, Overrides(), os.environ)
    tls_contexts(listen_addresses(loaded.config, loaded.base))
    _write_notes((*loaded.notes, *check_vllm(loaded, arguments.file, is_to_run=False)))
    _write(f"{arguments.file}: no faults")
    return 0


def _fetch(arguments: argparse.Namespace) -> int:
    _write(str(fetch_model(CATALOGUE[arguments.model], cache_folder(os.environ), Console(stderr=True))))
    return 0


def _spec(arguments: argparse.Namespace) -> int:
    if arguments.dialect and not arguments.json:
        raise StartupError("--dialect goes with --json: the YAML has both dialects")
    document = openapi_json(Dialect(arguments.dialect or Dialect.VLLM)) if arguments.json else openapi_yaml()
    _write(document.decode().rstrip("\n"))
    return 0


def _write_notes(notes: Iterable[str]) -> None:
    for note in notes:
        print(f"note: {note}", file=sys.stderr)  # noqa: T201 - the command line talks to people


def _write(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - the command line talks to people


COMMANDS: Final[dict[str, Callable[[argparse.Namespace], int]]] = {
    "serve": _serve,
    "node": _node,
    "check-config": _check_config,
    "fetch": _fetch,
    "spec": _spec,
}
