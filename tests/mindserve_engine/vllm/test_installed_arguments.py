"""What this engine says of the installed vLLM's arguments, beside what vLLM says itself."""

import dataclasses
import inspect

import pytest

pytest.importorskip("vllm", reason="make vllm-env brings it")

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.cli import serve
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.engine.async_llm import AsyncLLM

from mindserve_engine.options import VllmOptions
from mindserve_engine.vllm.extra_arguments import OWNED, extra_argument_problems
from mindserve_engine.vllm.installed import argument_types, check_version, installed_version
from mindserve_engine.vllm.scale import scale_arguments

FIELDS = {field.name for field in dataclasses.fields(AsyncEngineArgs)}
LATER = {"model_weights", "max_num_queued_reqs"}
"""Arguments that not all releases have."""
NODES = ("10.0.0.1", "10.0.0.2")


def test_the_version_is_one_that_was_exercised() -> None:
    assert check_version(installed_version(), allow_any=False) is None


def test_the_names_read_from_the_file_are_those_of_the_class() -> None:
    assert set(argument_types()) == {name for name in FIELDS if not name.startswith("_")}


def test_arguments_of_ours_are_vllms() -> None:
    assert set(OWNED) - LATER <= FIELDS
    several = {"tensor_parallel": 2, "pipeline_parallel": 2, "nodes": NODES, "node_rank": 1, "speculative_tokens": 1}
    for shape in (VllmOptions(**several), VllmOptions(**several, data_parallel=4)):
        assert set(scale_arguments(shape)) <= FIELDS


def test_usual_arguments_of_operators_pass() -> None:
    given = {
        "enforce_eager": True,
        "gpu_memory_utilization": 0.85,
        "quantization": "fp8",
        "enable_expert_parallel": True,
        "decode_context_parallel_size": 2,
        "distributed_executor_backend": "ray",
        "compilation_config": {"level": 0},
        "kv_cache_dtype": "auto",
        "seed": 1,
    }
    assert list(extra_argument_problems(given, argument_types())) == []
    assert [name for name, _ in extra_argument_problems({"enforce_eagre": 1}, argument_types())] == ["enforce_eagre"]


def test_what_keeps_an_engine_is_where_it_is_looked_for() -> None:
    assert "data_parallel_rank" in inspect.signature(AsyncLLM.generate).parameters
    assert "engine_index" in EngineCoreOutputs.__struct_fields__
    assert isinstance(inspect.getattr_static(AsyncLLM, "errored"), property)
    assert list(inspect.signature(AsyncLLM.shutdown).parameters)[:2] == ["self", "timeout"]
    assert "headless" in inspect.signature(AsyncEngineArgs.create_engine_config).parameters
    assert list(inspect.signature(serve.run_headless).parameters) == ["args"]
