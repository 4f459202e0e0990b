"""The report on a device runs, and tells right from wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from torch import Tensor
from transformers import AutoModelForCausalLM

from mindserve_engine.native import runner
from mindserve_engine.native.device import registry
from tests import tiny_gguf, tiny_models
from tests.bench import device
from tests.cuda_host import FlashPackage, Gpu, HostCuda


class WrongActivation(HostCuda):
    """Gate and up in the wrong order."""

    def swiglu(self, gate_up: Tensor) -> Tensor:
        return super().swiglu(gate_up.roll(gate_up.shape[-1] // 2, dims=-1))


def test_the_cpu_reports_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert device.main(["--tiny"]) == 0
    told = capsys.readouterr().out
    assert "| small, random | float32 | 0.00e+00 |" in told
    assert "20 of 20 | 0 | right |" in told
    assert "| decode, 2 at 512 tokens |" in told
    assert "| prefill, 32 tokens |" in told


@pytest.mark.parametrize(("kind", "status"), [(HostCuda, 0), (WrongActivation, 1)])
def test_a_device_with_graphs(
    kind: type[HostCuda], status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def create(options: Any) -> Any:
        if options.device == "cpu":
            return registry.create_device(options)
        return kind(block_size=256, package=FlashPackage())

    for module in (runner, device):
        monkeypatch.setattr(module, "create_device", create)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "none")
    if kind is WrongActivation:
        monkeypatch.setattr("mindserve_engine.native.device.cuda.check_operators", lambda *_given: None)
    assert device.main(["--device", "cuda", "--dtype", "float32", "--tiny"]) == status
    told = capsys.readouterr().out
    assert "graphs for batches of: 1, 2" in told
    assert ("**WRONG**" in told) == bool(status)


def test_an_old_gpu_is_measured_in_the_type_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All devices are made with it: `auto` would be refused."""
    Gpu(monkeypatch, capability=(7, 5))

    def create(options: Any) -> Any:
        made = registry.create_device(options)
        return made if options.device == "cpu" else HostCuda(block_size=made.block_size)

    for module in (runner, device):
        monkeypatch.setattr(module, "create_device", create)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_given: "Tesla T4")
    assert device.main(["--device", "cuda", "--dtype", "float16", "--tiny"]) == 0
    assert "| small, random | float16 |" in capsys.readouterr().out


def test_what_cannot_be_used_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    assert device.main(["--device", "cuda", "--tiny"]) == 2
    assert "a build without CUDA" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "has_own_embedding"), [("llama", False), ("mistral-window", True)])
def test_weights_are_counted_by_their_shapes(tmp_path: Path, name: str, has_own_embedding: bool) -> None:
    """An embedding beside a head is looked up, not multiplied by; of a tied one it is the head that counts."""
    folder = tiny_models.build(name, tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    embedding = model.get_input_embeddings().weight.numel()
    matrices = sum(one.numel() for one in model.parameters() if one.dim() > 1)
    assert has_own_embedding == (not model.config.tie_word_embeddings)
    expected = matrices - (embedding if has_own_embedding else 0)
    parameters, file_bytes = device.weights_of(folder, device.TINY)
    assert parameters == expected
    assert file_bytes == 4 * expected
    assert device.read_bytes(parameters, file_bytes, width=2, device="npu") == 2 * expected


def test_weights_of_a_gguf_file_are_widened_by_devices_and_not_by_the_cpu(tmp_path: Path) -> None:
    parameters, file_bytes = device.weights_of(tiny_gguf.write("llama", tmp_path, linear=Kind.Q4_1), device.TINY)
    assert device.read_bytes(parameters, file_bytes, width=2, device="cuda") == 2 * parameters
    assert device.read_bytes(parameters, file_bytes, width=2, device="cpu") == file_bytes < parameters
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "source", dtype=torch.float32)
    tied = model.config.tie_word_embeddings
    matrices = sum(one.numel() for one in model.parameters() if one.dim() > 1)
    assert parameters == matrices - (0 if tied else model.get_input_embeddings().weight.numel())
