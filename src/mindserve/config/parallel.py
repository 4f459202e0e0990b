"""On how many devices a model runs, and how they share it: worldSize, tp, pp and dp."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import msgspec

from mindserve.config._generated import Config
from mindserve.config.faults import Fault
from mindserve.config.nodes import Nodes
from mindserve.config.overrides import the_model

_MODEL: Final = "BackendConfig.ModelDeployConfig.ModelConfig[0]"
_UNSET: Final = -1


class Parallel(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of parts; their product is the number of devices."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1

    @property
    def num_devices(self) -> int:
        return self.tensor * self.pipeline * self.data


def parallel_faults(config: Config, nodes: Nodes | None) -> Iterator[Fault]:
    """What does not fit together, or not with the engine."""
    model = the_model(config)
    if model.backend_type == "scripted":
        return
    zeros = [
        Fault(f"{_MODEL}.{key}", "0 is neither -1 nor at least 1") for key in ("tp", "dp") if not getattr(model, key)
    ]
    if zeros:
        yield from zeros
    elif model.backend_type == "vllm":
        yield from _sum_faults(config, nodes)
        if nodes is not None:
            yield from _node_faults(parallel_sizes(config, nodes), len(nodes.addresses))
    elif model.device != "cpu":  # which takes a configuration for many devices as one for itself, with a note
        yield from _one_device(config)


def parallel_sizes(config: Config, nodes: Nodes | None) -> Parallel:
    """Of a config without faults; tp is what the others leave of worldSize unless it is given."""
    model = the_model(config)
    data = 1 if model.dp == _UNSET else model.dp
    devices, _ = _num_devices(config, nodes)
    left = 1 if devices is None else max(1, devices // (data * model.pp))
    return Parallel(tensor=left if model.tp == _UNSET else model.tp, pipeline=model.pp, data=data)


def _num_devices(config: Config, nodes: Nodes | None) -> tuple[int | None, str]:
    """As far as it is told, and where it stands."""
    if nodes is not None and nodes.num_devices is not None:
        return nodes.num_devices, "the rank table"
    return the_model(config).world_size, "worldSize"


def _one_device(config: Config) -> Iterator[Fault]:
    model = the_model(config)
    for key, number in (("worldSize", model.world_size or 1), ("tp", model.tp), ("pp", model.pp), ("dp", model.dp)):
        if number > 1:
            problem = f'{number}: the native engine computes on one device, several take backendType "vllm"'
            yield Fault(f"{_MODEL}.{key}", problem)
            return  # the others say the same


def _sum_faults(config: Config, nodes: Nodes | None) -> Iterator[Fault]:
    devices, source = _num_devices(config, nodes)
    sizes = parallel_sizes(config, nodes)
    if devices is not None and sizes.num_devices != devices:
        product = " x ".join(f"{key} {number}" for key, number in _named(sizes))
        problem = f"{product} are {sizes.num_devices} devices, {source} has {devices}"
        yield Fault(f"{_MODEL}.{'worldSize' if source == 'worldSize' else 'tp'}", problem)


def _named(sizes: Parallel) -> tuple[tuple[str, int], ...]:
    return ("tp", sizes.tensor), ("pp", sizes.pipeline), ("dp", sizes.data)


def _node_faults(sizes: Parallel, num_nodes: int) -> Iterator[Fault]:
    if sizes.data == 1 and sizes.num_devices % num_nodes:
        problem = f"{sizes.num_devices} devices cannot be spread evenly over {num_nodes} machines"
        yield Fault(f"{_MODEL}.tp", problem)
    if sizes.data > 1 and math.gcd(sizes.data, num_nodes) != num_nodes:
        problem = (
            f"{sizes.data} is neither 1 nor a multiple of the {num_nodes} machines: each runs as many whole copies"
        )
        yield Fault(f"{_MODEL}.dp", problem)
