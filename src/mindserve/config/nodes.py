"""The machines that run one model together: MindIE's rank table, or a list in the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from mindserve.config._generated import Config
from mindserve.config.faults import Fault
from mindserve.config.overrides import CONTAINER_IP, the_model
from mindserve.config.paths import path_text

RANK_TABLE_VARIABLES: Final = ("RANKTABLEFILE", "RANK_TABLE_FILE")
"""MindIE's name for the rank table's path, and that of CANN's own libraries."""
_OWN_ADDRESS_VARIABLES: Final = (CONTAINER_IP, "HOST_IP")
MULTI_NODES: Final = "BackendConfig.multiNodesInferEnabled"
NODES: Final = "BackendConfig.VllmConfig.nodes"
_MAX_TABLE_BYTES: Final = 4 * 1024 * 1024


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """Machines in the order of their ranks; the first one serves."""

    addresses: tuple[str, ...]
    num_devices: int | None = None
    """On all of them together; ``None``: not told."""
    own_rank: int | None = None
    """Of the machine that this is, where its address tells."""


class NodesInvalid(ValueError):
    """The machines cannot be found out. The text names the bound and the value."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(problem)
        self.fault = Fault(path, problem)


class _Device(msgspec.Struct):
    rank_id: str | int


class _Server(msgspec.Struct):
    device: list[_Device]
    server_id: str = ""
    container_ip: str = ""
    host_ip: str = ""

    @property
    def ranks(self) -> list[int]:
        return [int(device.rank_id) for device in self.device]


class _RankTable(msgspec.Struct):
    server_list: list[_Server]


def find_nodes(config: Config, environ: Mapping[str, str]) -> Nodes | None:
    """``None``: one machine. Raises ``NodesInvalid``."""
    backend = config.backend_config
    if not backend.multi_nodes_infer_enabled or the_model(config).backend_type == "scripted":
        return None
    if the_model(config).backend_type != "vllm":
        raise NodesInvalid(MULTI_NODES, 'true takes backendType "vllm": the native engine runs on one machine')
    table = next((environ[name] for name in RANK_TABLE_VARIABLES if environ.get(name)), None)
    listed = tuple(node.root for node in backend.vllm_config.nodes)
    if listed:
        nodes = Nodes(addresses=listed)
    elif table is not None:
        nodes = _read_table(Path(table))
    else:
        problem = f"true takes a rank table, named by the variable {RANK_TABLE_VARIABLES[0]}, or VllmConfig.nodes"
        raise NodesInvalid(MULTI_NODES, problem)
    return msgspec.structs.replace(nodes, own_rank=_own_rank(nodes.addresses, environ))


def _own_rank(addresses: tuple[str, ...], environ: Mapping[str, str]) -> int | None:
    own = next((environ[name] for name in _OWN_ADDRESS_VARIABLES if environ.get(name)), None)
    return addresses.index(own) if own is not None and addresses.count(own) == 1 else None


def _read_table(path: Path) -> Nodes:
    where, name = RANK_TABLE_VARIABLES[0], path_text(path)
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_TABLE_BYTES + 1)
        if len(data) > _MAX_TABLE_BYTES:
            raise NodesInvalid(where, f"{name} is larger than {_MAX_TABLE_BYTES} bytes, which no rank table is")
        table = msgspec.json.decode(data, type=_RankTable)
        problem = next(_table_problems(table), None)
    except OSError as error:
        raise NodesInvalid(where, f"{name} cannot be read: {error.strerror or error}") from error
    except (msgspec.MsgspecError, ValueError) as error:
        if isinstance(error, NodesInvalid):
            raise
        raise NodesInvalid(where, f"{name} is no rank table: {error}") from error
    if problem is not None:
        raise NodesInvalid(where, f"{name}: {problem}")
    servers = sorted(table.server_list, key=lambda server: min(server.ranks))
    return Nodes(
        addresses=tuple(map(_address, servers)),
        num_devices=sum(len(server.device) for server in servers),
    )


def _address(server: _Server) -> str:
    return server.container_ip or server.host_ip or server.server_id


def _table_problems(table: _RankTable) -> Iterator[str]:
    """Of a table that has the right shape."""
    servers = table.server_list
    if not servers:
        yield "server_list is empty"
    for number, server in enumerate(servers):
        if not server.device:
            yield f"server_list[{number}].device is empty"
        if not _address(server):
            yield f"server_list[{number}] has no container_ip, host_ip or server_id"
    ranks = sorted(rank for server in servers for rank in server.ranks)
    missing = sorted(set(range(len(ranks))) - set(ranks))
    if missing:
        yield f"rank_id: {missing[0]} is missing, {len(ranks)} devices have 0 to {len(ranks) - 1}, each once"
    sizes = sorted({len(server.device) for server in servers})
    if len(sizes) > 1:
        yield f"the machines have {' and '.join(map(str, sizes))} devices: as many on each are needed"
