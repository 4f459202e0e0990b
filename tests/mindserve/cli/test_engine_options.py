import json
from pathlib import Path
from typing import Any

import pytest

from mindserve.cli.engine_options import choose_engine
from mindserve.config.load import load_config
from mindserve.config.overrides import Overrides
from mindserve_engine.options import EngineOptions

WEIGHTS = Path("weights.gguf")


def choice(folder: Path, backend: dict[str, Any], overrides: Overrides | None = None) -> tuple[str, EngineOptions]:
    path = folder / "config.json"
    path.write_text(json.dumps({"BackendConfig": backend}))
    chosen = choose_engine(load_config(path, overrides or Overrides(), {}), WEIGHTS)
    return chosen.name, chosen.options


def with_model(**values: object) -> dict[str, Any]:
    return {"ModelDeployConfig": {"ModelConfig": [values]}}


def test_an_empty_config_gives_the_native_engine_with_its_own_defaults(tmp_path: Path) -> None:
    assert choice(tmp_path, {}) == ("native", EngineOptions(model_path=WEIGHTS, max_waiting=2000))


def test_every_key_of_the_engine_arrives(tmp_path: Path) -> None:
    backend = {
        "modelInstanceNumber": 2,
        "engineHeartbeatTimeout": 9,
        "ModelDeployConfig": {
            "maxSeqLen": 1000,
            "maxInputTokenLen": 900,
            "ModelConfig": [{"npuMemSize": 3, "dtype": "float32", "numThreads": 4, "trustRemoteCode": True}],
        },
        "ScheduleConfig": {
            "cacheBlockSize": 32,
            "maxPrefillTokens": 512,
            "maxBatchSize": 64,
            "enablePrefixCache": False,
        },
    }
    assert choice(tmp_path, backend) == (
        "native",
        EngineOptions(
            model_path=WEIGHTS,
            dtype="float32",
            num_instances=2,
            max_context=1000,
            max_prompt_tokens=900,
            max_batch_size=64,
            max_step_tokens=512,
            max_waiting=2000,
            block_size=32,
            kv_memory_gb=3.0,
            prefix_cache=False,
            num_threads=4,
            heartbeat_timeout_s=9.0,
            trust_remote_code=True,
        ),
    )


@pytest.mark.parametrize("backend_type", ["atb", "torch", "ms", "native"])
def test_mindies_backends_are_the_native_engine(tmp_path: Path, backend_type: str) -> None:
    assert choice(tmp_path, with_model(backendType=backend_type))[0] == "native"


def test_the_scripted_engine_by_file_and_by_command_line(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("")
    assert choice(tmp_path, with_model(backendType="scripted", modelWeightPath="script.yaml"))[0] == "scripted"
    assert choice(tmp_path, with_model(), Overrides(engine="scripted", model=script))[0] == "scripted"


def test_a_batch_is_no_larger_than_the_tokens_of_a_step_or_the_links(tmp_path: Path) -> None:
    assert choice(tmp_path, {"ScheduleConfig": {"maxPrefillTokens": 100}})[1].max_batch_size == 100
    path = tmp_path / "config.json"
    path.write_text('{"ServerConfig": {"maxLinkNum": 3}}')
    assert choose_engine(load_config(path, Overrides(), {}), WEIGHTS).options.max_batch_size == 3


@pytest.mark.parametrize(("told", "given"), [(9000, 9000), (100, 4096)])
def test_more_tokens_of_an_image_arrive(tmp_path: Path, told: int, given: int) -> None:
    """Fewer are the server's matter: frames of videos, which the engine bounds alike, have a setting of their own."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"MediaConfig": {"maxImageTokens": told}}))
    assert choose_engine(load_config(path, Overrides(), {}), WEIGHTS).options.max_image_tokens == given


def test_devices_arrive(tmp_path: Path) -> None:
    backend = {"modelInstanceNumber": 2, "npuDeviceIds": [[3], [5]], **with_model(device="npu", npuGraph="off")}
    _, options = choice(tmp_path, backend)
    assert (options.device, options.device_ids, options.graphs) == ("npu", [3, 5], False)
