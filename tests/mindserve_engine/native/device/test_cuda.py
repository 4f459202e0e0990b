"""The CUDA device's parts that need no GPU, and what is said where one is missing."""

from __future__ import annotations

import inspect
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from mindserve_engine.interface import EngineError
from mindserve_engine.native.device import cuda
from mindserve_engine.native.device.base import AttentionShape
from mindserve_engine.native.device.cuda_attention import FlashAttention
from mindserve_engine.options import EngineOptions
from tests.cuda_host import SIGNATURES, VERSION, FlashPackage, HostCuda, signature

HEADS = AttentionShape(heads=4, kv_heads=2, head_dim=64)


def options(**fields: Any) -> EngineOptions:
    return EngineOptions(model_path=Path(), device="cuda", **fields)


def refused(**fields: Any) -> str:
    with pytest.raises(EngineError) as caught:
        cuda.create(options(**fields))
    assert "\n" not in str(caught.value)
    return str(caught.value)


class Gpu:
    """What torch.cuda says of a machine."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, capability: tuple[int, int] = (8, 0), count: int = 1
    ) -> None:
        answers = {
            "is_available": lambda: count > 0,
            "device_count": lambda: count,
            "set_device": lambda _number: None,
            "get_device_capability": lambda _device: capability,
            "get_device_name": lambda _device: "Tesla V100",
            "mem_get_info": lambda _device: (1 << 30, 1 << 31),
            "graph_pool_handle": lambda: (0, 0),
        }
        for name, answer in answers.items():
            monkeypatch.setattr(torch.cuda, name, answer)
        monkeypatch.setattr(torch.version, "cuda", "13.0")


def test_a_build_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "is a build without CUDA" in refused()


def test_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    Gpu(monkeypatch, count=0)
    assert refused().startswith("device: cuda: no GPU is visible")
    Gpu(monkeypatch, count=2)
    assert refused(device_ids=[2]) == "npuDeviceIds: 2 is not among the 2 visible devices"


def test_what_the_options_ask_for_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    Gpu(monkeypatch, capability=(7, 0))
    assert refused() == "dtype: bfloat16 is not available on Tesla V100, float16 and float32 are"
    assert refused(dtype="float16", deterministic=True) == "deterministic: is not available on cuda"
    assert "cacheBlockSize: 24 is not a multiple of 16" in refused(dtype="float32", block_size=24)


def test_flash_attn_decides_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    Gpu(monkeypatch)
    monkeypatch.setattr(cuda, "find_spec", lambda _name: object())
    monkeypatch.setitem(sys.modules, "flash_attn", types.ModuleType("flash_attn"))
    assert cuda.create(options(block_size=128)).block_size == 256
    assert "only 128, which stands for its blocks of 256" in refused(block_size=64)
    assert cuda.create(options(block_size=64, dtype="float32")).block_size == 64, "which flash-attn does not compute"


def test_a_flash_attn_that_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    broken = tmp_path / "flash_attn.py"
    broken.write_text("raise ImportError('undefined symbol')")
    monkeypatch.syspath_prepend(tmp_path)
    Gpu(monkeypatch)
    assert cuda.create(options(block_size=64)).block_size == 64
    assert "flash-attn cannot be loaded (ImportError: undefined symbol)" in caplog.text


def test_float32_is_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    backends: tuple[Any, Any] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [backend.allow_tf32 for backend in backends]
    Gpu(monkeypatch)
    try:
        for backend in backends:
            backend.allow_tf32 = True
        cuda.create(options(dtype="float32"))
        assert not any(backend.allow_tf32 for backend in backends)
    finally:
        for backend, value in zip(backends, before, strict=True):
            backend.allow_tf32 = value


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_of_the_installed_package(name: str) -> None:
    """Checked in from the source of one release; where the package is installed, it must be the same."""
    package = pytest.importorskip("flash_attn", reason=f"flash-attn is not installed; the signatures are {VERSION}'s")
    assert list(inspect.signature(getattr(package, name)).parameters) == list(signature(name).parameters)


@pytest.mark.parametrize(
    ("head_dim", "dtype", "fits"),
    [
        (64, torch.bfloat16, True),
        (64, torch.float16, True),
        (64, torch.float32, False),
        (256, torch.bfloat16, True),
        (264, torch.bfloat16, False),
        (60, torch.bfloat16, False),
    ],
)
def test_what_flash_attn_computes(head_dim: int, dtype: torch.dtype, fits: bool) -> None:
    assert FlashAttention(FlashPackage()).fits(head_dim, dtype) == fits


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("flash", [False, True])
def test_the_self_test_passes(dtype: torch.dtype, flash: bool) -> None:
    device = HostCuda(block_size=256, package=FlashPackage() if flash else None)
    device.self_test(HEADS, dtype)
    assert device.package is None or set(device.package.calls) == {"flash_attn_varlen_func"}


def test_the_self_test_finds_wrong_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    package = FlashPackage()
    right = package.flash_attn_varlen_func
    monkeypatch.setattr(
        package, "flash_attn_varlen_func", lambda *args, **kwargs: right(*args, **{**kwargs, "causal": False})
    )
    device = HostCuda(block_size=256, package=package)
    with pytest.raises(EngineError, match="self-test: attention is off by"):
        device.self_test(HEADS, torch.float32)
