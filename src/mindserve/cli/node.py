"""A further machine of a model that lies on several: it computes for the one that serves, and answers nobody else."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import msgspec

from mindserve.cli.ending import leave
from mindserve.cli.engine_options import choose_engine
from mindserve.cli.serving_machine import ServingMachine
from mindserve.config.load import LoadedConfig
from mindserve.config.lower import log_settings
from mindserve.config.paths import model_place
from mindserve.config.vllm_rules import is_vllm
from mindserve.errors import StartupError
from mindserve.observe.logs import set_up_logging
from mindserve_engine.options import EngineOptions
from mindserve_engine.registry import work_for_another


def run_node(loaded: LoadedConfig, rank: int | None) -> NoReturn:
    """Work until the machine that serves ends, or a signal comes. Raises ``StartupError``."""
    options = node_options(loaded, rank)
    set_up_logging(level=log_settings(loaded, None).level)
    print(f"machine {options.vllm.node_rank} of {len(options.vllm.nodes)} joins {options.vllm.nodes[0]}", flush=True)  # noqa: T201 - to a person
    machine = ServingMachine(options.vllm.nodes[0], loaded.config.server_config.port, patience_s(loaded))
    leave(work_for_another("vllm", options, machine.is_gone))


def patience_s(loaded: LoadedConfig) -> float:
    """Seconds for which the serving machine may be out of reach."""
    return float(loaded.config.backend_config.vllm_config.serving_machine_timeout)


def node_options(loaded: LoadedConfig, rank: int | None) -> EngineOptions:
    """The engine's options on that machine; ``None``: the rank at which its own address stands."""
    if not is_vllm(loaded.config) or loaded.nodes is None:
        raise StartupError('a further machine takes backendType "vllm" and multiNodesInferEnabled: true in the config')
    own = rank if rank is not None else loaded.nodes.own_rank
    last = len(loaded.nodes.addresses) - 1
    if own is None:
        raise StartupError(f"which machine is this? --rank says it: 1 to {last}")
    if own == 0:
        raise StartupError("this is the first machine, which serves: mindserve serve")
    if own > last:
        raise StartupError(f"--rank {own} is above the last machine's, {last}")
    place = model_place(loaded.config, loaded.base)
    assert isinstance(place, Path)  # packaged models are refused with this engine
    options = choose_engine(loaded, place).options
    return msgspec.structs.replace(options, vllm=msgspec.structs.replace(options.vllm, node_rank=own))
