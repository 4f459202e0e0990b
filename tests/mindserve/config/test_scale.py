"""Devices and machines: what fits together, what is refused, and where the machines come from."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mindserve.config.load import LoadedConfig
from mindserve.config.nodes import Nodes
from mindserve.config.parallel import Parallel

Load = Callable[..., LoadedConfig]
FaultsOf = Callable[..., dict[str, str]]
MODEL = "BackendConfig.ModelDeployConfig.ModelConfig[0]"


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """A config for the vllm engine, its weights' folder made."""
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "config.json").write_text("{}")

    def make(backend: dict[str, Any] | None = None, **model: object) -> dict[str, Any]:
        one = {"modelWeightPath": "weights", "backendType": "vllm", **model}
        return {"BackendConfig": {**(backend or {}), "ModelDeployConfig": {"ModelConfig": [one]}}}

    return make


def table(folder: Path, *servers: dict[str, Any]) -> dict[str, str]:
    path = folder / "ranktable.json"
    path.write_text(json.dumps({"version": "1.0", "status": "completed", "server_list": servers}))
    return {"RANKTABLEFILE": str(path)}


def server(address: str, *ranks: int, **more: str) -> dict[str, Any]:
    devices = [{"device_id": str(i), "device_ip": "10.20.0.1", "rank_id": str(rank)} for i, rank in enumerate(ranks)]
    return {"server_id": address, "device": devices, **more}


TWO = ("10.0.0.1", "10.0.0.2")


@pytest.mark.parametrize(
    ("model", "parallel"),
    [
        ({}, Parallel()),
        ({"worldSize": 4}, Parallel(tensor=4)),
        ({"worldSize": 8, "dp": 2}, Parallel(tensor=4, data=2)),
        ({"worldSize": 8, "dp": 2, "pp": 2, "tp": -1}, Parallel(tensor=2, pipeline=2, data=2)),
        ({"tp": 2, "pp": 3}, Parallel(tensor=2, pipeline=3)),
        ({"worldSize": 4, "tp": 2, "dp": 2}, Parallel(tensor=2, data=2)),
    ],
)
def test_tp_is_what_the_others_leave(
    load: Load, config: Callable[..., dict[str, Any]], model: dict[str, int], parallel: Parallel
) -> None:
    assert load(config(**model)).parallel == parallel


@pytest.mark.parametrize(
    ("model", "key", "problem"),
    [
        ({"worldSize": 4, "tp": 3}, "worldSize", "tp 3 x pp 1 x dp 1 are 3 devices, worldSize has 4"),
        ({"worldSize": 4, "dp": 3}, "worldSize", "tp 1 x pp 1 x dp 3 are 3 devices, worldSize has 4"),
        ({"tp": 0}, "tp", "0 is neither -1 nor at least 1"),
        ({"dp": 0}, "dp", "0 is neither -1 nor at least 1"),
    ],
)
def test_numbers_that_do_not_fit(
    faults_of: FaultsOf, config: Callable[..., dict[str, Any]], model: dict[str, int], key: str, problem: str
) -> None:
    assert faults_of(config(**model)) == {f"{MODEL}.{key}": problem}


@pytest.mark.parametrize("key", ["worldSize", "tp", "pp", "dp"])
def test_the_native_engine_runs_on_one_device(faults_of: FaultsOf, key: str) -> None:
    problem = '2: the native engine computes on one device, several take backendType "vllm"'

    def config(number: int, device: str) -> dict[str, Any]:
        return {"BackendConfig": {"ModelDeployConfig": {"ModelConfig": [{key: number, "device": device}]}}}

    assert faults_of(config(2, "npu")) == {f"{MODEL}.{key}": problem}
    assert faults_of(config(1, "npu")) == {}
    assert faults_of(config(2, "cpu")) == {}, "a configuration for many devices does no harm on the CPU"


def test_the_native_engine_runs_on_one_machine(faults_of: FaultsOf) -> None:
    faults = faults_of({"BackendConfig": {"multiNodesInferEnabled": True}})
    assert faults == {
        "BackendConfig.multiNodesInferEnabled": 'true takes backendType "vllm": the native engine runs on one machine'
    }


def test_a_rank_table_gives_the_machines_and_the_devices(
    load: Load, config: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    environ = table(tmp_path, server("node-b", 2, 3, container_ip=TWO[1]), server(TWO[0], 1, 0))
    content = config({"multiNodesInferEnabled": True}, worldSize=2)
    loaded = load(content, environ=environ | {"MIES_CONTAINER_IP": TWO[1]})
    assert loaded.nodes == Nodes(addresses=TWO, num_devices=4, own_rank=1)
    assert loaded.parallel == Parallel(tensor=4)
    without_switch = load(config({"multiNodesInferEnabled": False}), environ=environ)
    assert without_switch.nodes is None


def test_a_list_gives_the_machines(load: Load, config: Callable[..., dict[str, Any]]) -> None:
    backend = {"multiNodesInferEnabled": True, "VllmConfig": {"nodes": list(TWO)}}
    loaded = load(config(backend, worldSize=4, dp=2), environ={"HOST_IP": TWO[0]})
    assert loaded.nodes == Nodes(addresses=TWO, own_rank=0)
    assert "vLLM does not encrypt what it sends between machines: keep that network private" in loaded.notes


@pytest.mark.parametrize(
    ("model", "key", "problem"),
    [
        ({"tp": 3}, "tp", "3 devices cannot be spread evenly over 2 machines"),
        (
            {"dp": 3},
            "dp",
            "3 is neither 1 nor a multiple of the 2 machines: each runs as many whole copies",
        ),
    ],
)
def test_what_cannot_be_spread_over_machines(
    faults_of: FaultsOf, config: Callable[..., dict[str, Any]], model: dict[str, int], key: str, problem: str
) -> None:
    backend = {"multiNodesInferEnabled": True, "VllmConfig": {"nodes": list(TWO)}}
    assert faults_of(config(backend, **model)) == {f"{MODEL}.{key}": problem}


def test_machines_that_cannot_be_found_out(
    faults_of: FaultsOf, config: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    content = config({"multiNodesInferEnabled": True})
    missing = {"RANKTABLEFILE": str(tmp_path / "none.json")}
    broken = tmp_path / "broken.json"
    broken.write_text('{"server_list": 1}')
    cases: list[tuple[dict[str, str], str, str]] = [
        ({}, "BackendConfig.multiNodesInferEnabled", "takes a rank table, named by the variable RANKTABLEFILE, or"),
        (missing, "RANKTABLEFILE", "cannot be read: No such file"),
        ({"RANKTABLEFILE": str(broken)}, "RANKTABLEFILE", "is no rank table: Expected `array`"),
        (table(tmp_path, server(TWO[0], 0, 0)), "RANKTABLEFILE", "rank_id: 1 is missing, 2 devices have 0 to 1"),
    ]
    for environ, path, problem in cases:
        faults = faults_of(content, environ=environ)
        assert list(faults) == [path]
        assert problem in faults[path]
    uneven = table(tmp_path, server(TWO[0], 0, 1), server(TWO[1], 2))
    assert "have 1 and 2 devices" in faults_of(content, environ=uneven)["RANKTABLEFILE"]
    assert "is empty" in faults_of(content, environ=table(tmp_path))["RANKTABLEFILE"]


@pytest.mark.parametrize(
    ("backend", "model", "path", "problem"),
    [
        ({}, {"modelWeightPath": None}, f"{MODEL}.modelWeightPath", "takes a folder in transformers' layout"),
        ({"modelInstanceNumber": 2}, {}, "BackendConfig.modelInstanceNumber", "2: copies of the model are dp"),
        ({}, {"deterministic": True}, f"{MODEL}.deterministic", "does not promise it"),
        ({}, {"dtype": "int4"}, f"{MODEL}.dtype", '"int4" is how the native engine'),
        (
            {"VllmConfig": {"engineArgs": [1]}},
            {},
            "BackendConfig.VllmConfig.engineArgs",
            "a list of 1 item is not an object",
        ),
        (
            {},
            {"plugin_params": {"plugin_type": "mtp", "num_speculative_tokens": 0}},
            f"{MODEL}.plugin_params",
            "num_speculative_tokens: 0 is not in 1 to 16",
        ),
        (
            {"VllmConfig": {"engineArgs": {"speculative_config": {}}}},
            {"plugin_params": {"plugin_type": "mtp"}},
            "BackendConfig.VllmConfig.engineArgs",
            "speculative_config: mtp of plugin_params sets it already",
        ),
    ],
)
def test_what_the_vllm_engine_cannot_do(
    faults_of: FaultsOf,
    config: Callable[..., dict[str, Any]],
    backend: dict[str, Any],
    model: dict[str, Any],
    path: str,
    problem: str,
) -> None:
    faults = faults_of(config(backend, **model))
    assert list(faults) == [path]
    assert problem in faults[path]


def test_what_has_no_effect_is_told(load: Load, config: Callable[..., dict[str, Any]]) -> None:
    content = config(
        {"engineHeartbeatTimeout": 5, "VllmConfig": {"nodes": ["a"]}},
        numThreads=2,
        plugin_params={"plugin_type": "mtp,la"},
    )
    notes = load(content).notes
    assert "no effect with the vllm engine: numThreads, engineHeartbeatTimeout" in notes
    assert "VllmConfig.nodes has no effect: multiNodesInferEnabled is false" in notes
    assert "plugin_params: no effect here: la" in notes
    native = load({"BackendConfig": {"VllmConfig": {"stallTimeout": 5}}}).notes
    assert native == ("VllmConfig has no effect: backendType is not vllm",)
