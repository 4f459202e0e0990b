"""The report on a device runs, and tells right from wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from mindserve_engine.native import runner
from mindserve_engine.native.device import registry
from tests.bench import device
from tests.cuda_host import FlashPackage, HostCuda


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


def test_what_cannot_be_used_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    assert device.main(["--device", "cuda", "--tiny"]) == 2
    assert "a build without CUDA" in capsys.readouterr().err
