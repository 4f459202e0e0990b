"""The words of the command line."""

from __future__ import annotations

import argparse
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final, NoReturn

from mindserve.config.packaged import CATALOGUE, default_name
from mindserve.config.settings import Dialect
from mindserve_engine.registry import engine_names

CONFIG_VARIABLE: Final = "MIES_CONFIG_JSON_PATH"
"""MindIE's variable for the place of config.json."""
RANK_VARIABLE: Final = "MINDSERVE_NODE_RANK"
"""The rank of a machine that does not serve."""

_DTYPES: Final = ("auto", "int4", "bfloat16", "float16", "float32")
_DEVICES: Final = ("cpu", "cuda", "npu")


class _Parser(argparse.ArgumentParser):
    """Says in one line what it did not understand."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)  # noqa: T201 - to a person
        raise SystemExit(2)


def parse_arguments(words: list[str] | None) -> argparse.Namespace:
    """``words`` without the program's name; ``None``: those of the process. Exits with 2 on words it does not know."""
    parser = _Parser(prog="mindserve", description="Serves chat completions as MindIE documents them.")
    parser.add_argument("--version", action="version", version=f"mindserve {version('mindserve')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_serve(commands.add_parser("serve", help="serve a model (without arguments: the default one)"))
    _add_node(
        commands.add_parser("node", help="run a further machine of a model on several (vllm engine); it serves nothing")
    )
    check = commands.add_parser("check-config", help="tell everything that is wrong with a config.json")
    check.add_argument("file", type=Path, metavar="FILE")
    fetch = commands.add_parser("fetch", help="download a model into the user's cache and print its path")
    fetch.add_argument(
        "model", nargs="?", choices=list(CATALOGUE), default=default_name(), help="(default: %(default)s)"
    )
    spec = commands.add_parser("spec", help="print the OpenAPI document")
    spec.add_argument("--json", action="store_true", help="one dialect as JSON, instead of both as YAML")
    spec.add_argument("--dialect", choices=list(Dialect), help="which one (with --json; default: vllm)")
    return parser.parse_args(words)


def _add_config(parser: argparse.ArgumentParser, help_end: str) -> None:
    default_config = os.environ.get(CONFIG_VARIABLE) or None
    parser.add_argument(
        "--config",
        type=Path,
        metavar="config.json",
        default=Path(default_config) if default_config else None,
        help=f"MindIE's configuration file (default: ${CONFIG_VARIABLE}); {help_end}",
    )


def _add_node(parser: argparse.ArgumentParser) -> None:
    _add_config(parser, "the same as on the machine that serves")
    parser.add_argument(
        "--rank",
        type=_rank,
        metavar="N",
        default=os.environ.get(RANK_VARIABLE) or None,
        help=f"this machine's place among the others, from 1 (default: ${RANK_VARIABLE}, else by its address)",
    )


def _add_serve(parser: argparse.ArgumentParser) -> None:
    _add_config(parser, "the options below win over it")
    parser.add_argument(
        "--model",
        type=Path,
        metavar="DIR|FILE.gguf|NAME",
        help=f"weights, or one of {', '.join(CATALOGUE)} (scripted engine: a script)",
    )
    parser.add_argument("--model-name", metavar="NAME", help="name of the model in requests")
    parser.add_argument("--engine", choices=engine_names(), help="what runs the model")
    parser.add_argument("--dtype", choices=_DTYPES, help="how weights are held")
    parser.add_argument("--device", choices=_DEVICES, help="what the model runs on (default: the setting device, cpu)")
    parser.add_argument("--host", help="address to listen on")
    parser.add_argument("--port", type=_port, help="port to listen on; 0 takes a free one")
    parser.add_argument(
        "--api-key-file",
        type=Path,
        metavar="FILE",
        help="file with the API keys that requests must give, one a line (default: none is needed)",
    )
    parser.add_argument(
        "--browser-pages",
        action=argparse.BooleanOptionalAction,
        help="serve the playground at / and the reference at /docs (default: the setting browserPages, which is true)",
    )
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), help="least level that is logged")


def _rank(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 255):
        raise argparse.ArgumentTypeError(f"{text!r} is not the rank of a further machine (1 to 255)")
    return int(text)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return int(text)
