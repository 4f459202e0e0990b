"""What is said of the vllm engine before it is started: without vLLM, with versions and arguments of all kinds."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mindserve.cli import vllm_checks
from mindserve.cli.engine_options import choose_engine
from mindserve.cli.main import main
from mindserve.cli.node import node_options
from mindserve.cli.start import serving_plan
from mindserve.config.load import load_config
from mindserve.config.overrides import Overrides
from mindserve.errors import StartupError
from mindserve_engine.options import VllmOptions
from mindserve_engine.vllm.installed import VllmMissing

KNOWN = {"enforce_eager": "bool", "gpu_memory_utilization": "float", "quantization": "QuantizationMethods | str | None"}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a config for the vllm engine; its weights' folder is made."""
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "config.json").write_text("{}")

    def make(backend: dict[str, Any] | None = None, **model: object) -> Path:
        one = {"modelWeightPath": "weights", "backendType": "vllm", **model}
        path = tmp_path / "config.json"
        path.write_text(json.dumps({"BackendConfig": {**(backend or {}), "ModelDeployConfig": {"ModelConfig": [one]}}}))
        return path

    return make


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    """Pretends that this version of vLLM is installed; None: none."""

    def install(version: str | None) -> None:
        def found() -> str:
            if version is None:
                raise VllmMissing("vLLM is not installed: pip install vllm")
            return version

        def types() -> dict[str, str]:
            found()
            return KNOWN

        monkeypatch.setattr(vllm_checks, "installed_version", found)
        monkeypatch.setattr(vllm_checks, "argument_types", types)

    return install


def check(path: Path, *, is_to_run: bool = True) -> tuple[str, ...]:
    return vllm_checks.check_vllm(load_config(path, Overrides(), {}), path, is_to_run=is_to_run)


def test_an_exercised_vllm_has_nothing_to_tell(write: Callable[..., Path], vllm: Callable[..., None]) -> None:
    vllm("0.32.0")
    args = {"enforce_eager": True, "gpu_memory_utilization": 1, "quantization": "fp8"}
    assert check(write({"VllmConfig": {"engineArgs": args}})) == ()


def test_other_engines_are_not_looked_at(vllm: Callable[..., None]) -> None:
    vllm(None)
    assert vllm_checks.check_vllm(load_config(None, Overrides(), {}), None, is_to_run=True) == ()


def test_arguments_are_refused_by_name(write: Callable[..., Path], vllm: Callable[..., None]) -> None:
    vllm("0.27.1")
    args = {
        "enforce-eager": True,
        "tensor_parallel_size": 2,
        "max_logprobs": 1,
        "gpu_memory_utilization": "x",
        "zzz": 0,
    }
    path = write({"VllmConfig": {"engineArgs": args}})
    with pytest.raises(StartupError) as refused:
        check(path)
    place = f"{path}: BackendConfig.VllmConfig.engineArgs"
    assert str(refused.value).splitlines() == [
        f'{place}."enforce-eager": is no argument of the installed vLLM; near: enforce_eager',
        f"{place}.tensor_parallel_size: is set by the key tp",
        f"{place}.max_logprobs: is the engine's own affair, which its answers depend on",
        f"{place}.gpu_memory_utilization: is float, not str",
        f"{place}.zzz: is no argument of the installed vLLM",
    ]


def test_an_argument_that_the_machines_set_is_refused(write: Callable[..., Path], vllm: Callable[..., None]) -> None:
    vllm("0.27.1")
    several = {"multiNodesInferEnabled": True, "VllmConfig": {"nodes": ["10.0.0.1", "10.0.0.2"]}}
    several["VllmConfig"]["engineArgs"] = {"distributed_executor_backend": "ray"}  # type: ignore[index]
    with pytest.raises(StartupError, match="distributed_executor_backend: is set by other keys of this file"):
        check(write(several, tp=2))


def test_without_vllm_a_server_is_refused_and_a_config_is_not(
    write: Callable[..., Path], vllm: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    vllm(None)
    path = write({"VllmConfig": {"engineArgs": {"any_name": 1}}})
    assert main(["serve", "--config", str(path)]) == 2
    assert capsys.readouterr().err == "vLLM is not installed: pip install vllm\n"
    assert main(["check-config", str(path)]) == 0
    assert "the names in engineArgs were not looked up" in capsys.readouterr().err
    write({"VllmConfig": {"engineArgs": {"dtype": "half"}}})
    assert main(["check-config", str(path)]) == 2
    assert "engineArgs.dtype: is set by the key dtype" in capsys.readouterr().err


def test_another_version_is_refused_until_it_is_asked_for(
    write: Callable[..., Path], vllm: Callable[..., None]
) -> None:
    vllm("0.33.0")
    with pytest.raises(StartupError, match=r"vLLM 0\.33\.0 is outside the range .* 0\.23\.0 to 0\.32\.0"):
        check(write())
    assert "outside the range" in check(write(), is_to_run=False)[0]
    assert "is tried because of allowAnyVersion" in check(write({"VllmConfig": {"allowAnyVersion": True}}))[0]


def test_every_key_of_the_engine_arrives(write: Callable[..., Path]) -> None:
    path = write(
        {
            "multiNodesInferEnabled": True,
            "multiNodesInferPort": 2000,
            "VllmConfig": {
                "nodes": ["10.0.0.1", "10.0.0.2"],
                "engineArgs": {"enforce_eager": True},
                "stallTimeout": 7,
                "startTimeout": 77,
                "onEngineFailure": "exit",
                "allowAnyVersion": True,
            },
        },
        tp=2,
        dp=2,
        plugin_params='{"plugin_type": "mtp", "num_speculative_tokens": 2}',
    )
    choice = choose_engine(load_config(path, Overrides(), {}), Path("weights"))
    assert (choice.name, choice.options.engine_args) == ("vllm", {"enforce_eager": True})
    assert choice.options.vllm == VllmOptions(
        tensor_parallel=2,
        data_parallel=2,
        nodes=("10.0.0.1", "10.0.0.2"),
        node_port=2000,
        speculative_tokens=2,
        stall_timeout_s=7.0,
        start_timeout_s=77.0,
        restart=False,
        allow_any_version=True,
    )
    second = node_options(load_config(path, Overrides(), {}), 1)
    assert second == msgspec.structs.replace(
        choice.options,
        model_path=path.parent / "weights",
        vllm=msgspec.structs.replace(choice.options.vllm, node_rank=1),
    )


@pytest.mark.parametrize("setting", ["restart", "exit"])
def test_one_that_is_lost_for_good_ends_the_server(write: Callable[..., Path], setting: str) -> None:
    loaded = load_config(write({"VllmConfig": {"onEngineFailure": setting}}), Overrides(), {})
    plan = serving_plan(loaded, Path("weights"), ())
    assert (plan.ends_with_engine, plan.engine.options.vllm.restart) == (True, setting == "restart")


@pytest.mark.parametrize(
    ("environ", "rank", "problem"),
    [
        ({}, None, "which machine is this? --rank says it: 1 to 1"),
        ({"HOST_IP": "10.0.0.1"}, None, "this is the first machine, which serves: mindserve serve"),
        ({}, 2, "--rank 2 is above the last machine's, 1"),
    ],
)
def test_a_machine_that_is_none_of_the_others(
    write: Callable[..., Path], environ: dict[str, str], rank: int | None, problem: str
) -> None:
    path = write({"multiNodesInferEnabled": True, "VllmConfig": {"nodes": ["10.0.0.1", "10.0.0.2"]}}, tp=2)
    with pytest.raises(StartupError) as refused:
        node_options(load_config(path, Overrides(), environ), rank)
    assert str(refused.value) == problem
    by_address = load_config(path, Overrides(), {"HOST_IP": "10.0.0.2"})
    assert node_options(by_address, None).vllm.node_rank == 1


def test_a_further_machine_does_not_serve(
    write: Callable[..., Path],
    vllm: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    vllm("0.32.0")
    path = write({"multiNodesInferEnabled": True, "VllmConfig": {"nodes": ["10.0.0.1", "10.0.0.2"]}}, tp=2)
    monkeypatch.setenv("HOST_IP", "10.0.0.2")
    assert main(["serve", "--config", str(path)]) == 2
    assert "has rank 1 and does not serve: it runs `mindserve node` instead" in capsys.readouterr().err
    write(tp=2)
    assert main(["node", "--config", str(path), "--rank", "1"]) == 2
    assert 'a further machine takes backendType "vllm" and multiNodesInferEnabled' in capsys.readouterr().err
