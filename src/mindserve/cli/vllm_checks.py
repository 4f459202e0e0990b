"""What stands in the way of the vllm engine on this machine, found before anything slow: its version, its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mindserve.cli.engine_options import vllm_options
from mindserve.config.faults import ConfigInvalid, Fault
from mindserve.config.load import LoadedConfig
from mindserve.config.vllm_rules import is_vllm
from mindserve.errors import StartupError, shown
from mindserve_engine.interface import EngineError
from mindserve_engine.vllm.extra_arguments import extra_argument_problems
from mindserve_engine.vllm.installed import VllmMissing, argument_types, check_version, installed_version
from mindserve_engine.vllm.scale import scale_arguments

_ENGINE_ARGS: Final = "BackendConfig.VllmConfig.engineArgs"


def check_vllm(loaded: LoadedConfig, source: Path | None, *, is_to_run: bool) -> tuple[str, ...]:
    """Lines to tell. Raises ``StartupError`` for arguments that vLLM would refuse and, where it is to run here, for a
    vLLM that is missing or of another version."""
    if not is_vllm(loaded.config):
        return ()
    try:
        known, notes = argument_types(), _version_notes(loaded)
    except VllmMissing as error:
        if is_to_run:
            raise StartupError(str(error)) from error
        known, notes = None, (f"{error}; the names in engineArgs were not looked up",)
    except EngineError as error:
        if is_to_run:
            raise StartupError(str(error)) from error
        known, notes = argument_types(), (str(error),)
    _check_arguments(loaded, source, known)
    return notes


def _version_notes(loaded: LoadedConfig) -> tuple[str, ...]:
    allow_any = loaded.config.backend_config.vllm_config.allow_any_version
    note = check_version(installed_version(), allow_any=allow_any)
    return () if note is None else (note,)


def _check_arguments(loaded: LoadedConfig, source: Path | None, known: Mapping[str, str] | None) -> None:
    given: dict[str, Any] = loaded.config.backend_config.vllm_config.engine_args or {}
    used = frozenset(scale_arguments(vllm_options(loaded)))
    faults = [
        Fault(f"{_ENGINE_ARGS}.{name if name.isidentifier() else shown(name)}", problem)
        for name, problem in extra_argument_problems(given, known, used)
    ]
    if faults:
        raise ConfigInvalid(source, faults)
