"""Devices and machines as arguments of vLLM's engine: pure, and free of vllm.

With copies of the model (dp) over several machines, each machine runs as many whole copies, and vLLM's front end on the
first one shares requests out. Without, the parts of one copy (tp, pp) lie on all machines.
"""

from __future__ import annotations

from typing import Any, Final

from mindserve_engine.options import VllmOptions

_PROCESSES: Final = "mp"
"""vLLM's own processes, without Ray."""


def scale_arguments(options: VllmOptions) -> dict[str, Any]:
    """By the names of vLLM's EngineArgs, for the machine ``options.node_rank``; what is not needed is left to vLLM."""
    arguments: dict[str, Any] = {}
    if options.tensor_parallel > 1:
        arguments["tensor_parallel_size"] = options.tensor_parallel
    if options.pipeline_parallel > 1:
        arguments["pipeline_parallel_size"] = options.pipeline_parallel
    if options.data_parallel > 1:
        arguments["data_parallel_size"] = options.data_parallel
    if len(options.nodes) > 1:
        arguments |= _shared_copies(options) if options.data_parallel > 1 else _one_copy(options)
    if options.speculative_tokens:
        arguments["speculative_config"] = {"method": "mtp", "num_speculative_tokens": options.speculative_tokens}
    return arguments


def _shared_copies(options: VllmOptions) -> dict[str, Any]:
    on_each = options.data_parallel // len(options.nodes)
    arguments: dict[str, Any] = {
        "data_parallel_size_local": on_each,
        "data_parallel_address": options.nodes[0],
        "data_parallel_rpc_port": options.node_port,
    }
    if options.node_rank:
        arguments["data_parallel_start_rank"] = options.node_rank * on_each
    return arguments


def _one_copy(options: VllmOptions) -> dict[str, Any]:
    return {
        "nnodes": len(options.nodes),
        "node_rank": options.node_rank,
        "master_addr": options.nodes[0],
        "master_port": options.node_port,
        "distributed_executor_backend": _PROCESSES,
    }
