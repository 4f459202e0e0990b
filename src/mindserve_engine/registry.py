"""Engines by name. A module is imported only when it is asked for: naming one imports neither torch nor vllm."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final

from mindserve_engine.interface import Engine
from mindserve_engine.options import EngineOptions

_FACTORIES: Final = {
    "native": "mindserve_engine.native.process",
    "scripted": "mindserve_engine.scripted.engine",
    "vllm": "mindserve_engine.vllm.engine",
}
_NODES: Final = {"vllm": "mindserve_engine.vllm.node"}


def engine_names() -> tuple[str, ...]:
    """The names ``create_engine`` knows, for command-line help and error messages."""
    return tuple(_FACTORIES)


def create_engine(name: str, options: EngineOptions) -> Engine:
    """Build (not start) the engine called ``name``; each engine module offers ``create(options)``.

    Raises ``KeyError`` for a name that is not registered.
    """
    engine: Engine = import_module(_FACTORIES[name]).create(options)
    return engine


def work_for_another(name: str, options: EngineOptions, is_gone: Callable[[], bool]) -> int:
    """Compute for an engine called ``name`` on another machine, until it ends, ``is_gone`` (asked again and again) says
    so, or a signal comes; returns the exit status. Blocking, and only while the process has one thread. Raises
    ``KeyError`` for an engine that is not spread over machines."""
    status: int = import_module(_NODES[name]).work(options, is_gone)
    return status
