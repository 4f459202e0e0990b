"""From a file to a config that can be served, or to all that is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from mindserve.config._generated import Config
from mindserve.config.api_keys import ApiKeys, read_api_keys
from mindserve.config.faults import ConfigInvalid, Fault
from mindserve.config.known_keys import unknown_keys
from mindserve.config.media import media_hosts
from mindserve.config.nodes import Nodes, NodesInvalid, find_nodes
from mindserve.config.notes import start_notes
from mindserve.config.overrides import CONTAINER_IP, MANAGEMENT_IP, Overrides, apply_overrides, apply_typed
from mindserve.config.parallel import Parallel, parallel_faults, parallel_sizes
from mindserve.config.paths import api_key_file, base_folder
from mindserve.config.reading import read_config
from mindserve.config.rules import WEIGHTS_PATH, check_rules
from mindserve.config.schema_check import check_schema

_MODEL: Final = "BackendConfig.ModelDeployConfig.ModelConfig"
_SCALE_READS: Final = (
    "BackendConfig.multiNodes",
    "BackendConfig.VllmConfig",
    *(f"{_MODEL}[0].{key}" for key in ("worldSize", "tp", "pp", "dp", "backendType")),
)
"""Where a fault makes those of the machines and devices meaningless."""


class LoadedConfig(msgspec.Struct, frozen=True):
    """A config without faults, the overrides applied."""

    config: Config
    base: Path
    """Where relative paths in it start."""
    notes: tuple[str, ...]
    """What an operator should know at the start, one line each."""
    api_keys: ApiKeys | None = None
    media_hosts: tuple[str, ...] = ()
    """Hosts that media may be fetched from, canonical."""
    nodes: Nodes | None = None
    """``None``: one machine."""
    parallel: Parallel = Parallel()


def load_config(path: Path | None, overrides: Overrides, environ: Mapping[str, str]) -> LoadedConfig:
    """Read and check the file; without one the defaults stand. Raises ``ConfigUnreadable``, ``ConfigInvalid``, or the
    ``StartupError`` of a typed file of API keys or of a variable."""
    raw: dict[str, object] = {} if path is None else read_config(path)
    checked = check_schema(raw)
    config = apply_overrides(checked.config, overrides, environ)
    base = base_folder(path)
    nodes, scale_faults = _scale(config, environ, checked.faults)
    faults = [*checked.faults, *scale_faults, *check_rules(config, base, checked.faults)]
    if faults:
        raise ConfigInvalid(path, [_name_origin(fault, overrides, environ) for fault in faults], unknown_keys(raw))
    typed = apply_typed(config, overrides)
    keys = read_api_keys(api_key_file(typed, base), environ)
    notes, parallel = start_notes(path, raw, typed, base), parallel_sizes(config, nodes)
    return LoadedConfig(typed, base, notes, keys, media_hosts(environ), nodes, parallel)


def _scale(config: Config, environ: Mapping[str, str], known: Sequence[Fault]) -> tuple[Nodes | None, list[Fault]]:
    """The machines, and what is wrong with them or with how they share the model."""
    if any(fault.path.startswith(_SCALE_READS) for fault in known):
        return None, []
    try:
        nodes = find_nodes(config, environ)
    except NodesInvalid as error:
        return None, [error.fault]
    return nodes, list(parallel_faults(config, nodes))


def _name_origin(fault: Fault, overrides: Overrides, environ: Mapping[str, str]) -> Fault:
    """What came from the command line or from a variable is not to be looked for in the file."""
    origins = {
        "ServerConfig.ipAddress": CONTAINER_IP if environ.get(CONTAINER_IP) else None,
        "ServerConfig.managementIpAddress": MANAGEMENT_IP if environ.get(MANAGEMENT_IP) else None,
        WEIGHTS_PATH: "--model" if overrides.model is not None or overrides.engine is not None else None,
    }
    origin = origins.get(fault.path)
    return fault if origin is None else Fault(origin, fault.problem)
