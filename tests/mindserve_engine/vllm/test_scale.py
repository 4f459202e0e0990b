"""Devices and machines as arguments of vLLM's engine; that vLLM has these arguments is seen where it is installed."""

from typing import Any

import pytest

from mindserve_engine.options import VllmOptions
from mindserve_engine.vllm.extra_arguments import OWNED
from mindserve_engine.vllm.scale import scale_arguments

NODES = ("10.0.0.1", "10.0.0.2")
JOINED = {"nnodes": 2, "master_addr": "10.0.0.1", "master_port": 1120, "distributed_executor_backend": "mp"}
SHARED = {"data_parallel_size_local": 2, "data_parallel_address": "10.0.0.1", "data_parallel_rpc_port": 1120}


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        (VllmOptions(), {}),
        (
            VllmOptions(tensor_parallel=2, pipeline_parallel=3, data_parallel=4),
            {"tensor_parallel_size": 2, "pipeline_parallel_size": 3, "data_parallel_size": 4},
        ),
        (VllmOptions(nodes=("10.0.0.1",)), {}),
        (VllmOptions(tensor_parallel=2, nodes=NODES), {"tensor_parallel_size": 2, "node_rank": 0, **JOINED}),
        (
            VllmOptions(tensor_parallel=2, nodes=NODES, node_rank=1),
            {"tensor_parallel_size": 2, "node_rank": 1, **JOINED},
        ),
        (VllmOptions(data_parallel=4, nodes=NODES), {"data_parallel_size": 4, **SHARED}),
        (
            VllmOptions(data_parallel=4, nodes=NODES, node_rank=1),
            {"data_parallel_size": 4, "data_parallel_start_rank": 2, **SHARED},
        ),
        (
            VllmOptions(speculative_tokens=2),
            {"speculative_config": {"method": "mtp", "num_speculative_tokens": 2}},
        ),
    ],
)
def test_only_what_is_needed_is_given(options: VllmOptions, arguments: dict[str, Any]) -> None:
    assert scale_arguments(options) == arguments
    assert set(arguments) - set(OWNED) <= {"distributed_executor_backend", "speculative_config"}
