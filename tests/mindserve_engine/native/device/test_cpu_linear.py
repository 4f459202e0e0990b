"""Products with quantised weights on CPU against products with the weights written out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from mindserve_engine.native.device import cpu_linear
from mindserve_engine.native.device.cpu import CpuDevice
from mindserve_engine.native.device.cpu_linear import (
    WITH_BFLOAT16,
    WITHOUT_BFLOAT16,
    BatchSizeLinear,
    Crossover,
)
from mindserve_engine.native.weights.quantised import Int4Weight, Int8Weight, LinearWeight, widen

CPUS = pytest.mark.parametrize("crossover", [WITH_BFLOAT16, WITHOUT_BFLOAT16], ids=["bfloat16", "no bfloat16"])
ROWS = [1, 2, 4, 5, 8, 9, 12, 13, 40, 48, 49]


def int4(outputs: int, inputs: int) -> Int4Weight:
    generator = torch.Generator().manual_seed(outputs)
    scale = torch.rand(outputs, inputs // 32, generator=generator) * 0.02
    codes = torch.randint(0, 16, (outputs, inputs), generator=generator).to(torch.uint8)
    return Int4Weight(codes, scale, -7.5 * scale)


def int8(outputs: int, inputs: int) -> Int8Weight:
    return Int8Weight.quantise(torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(1)) * 0.05)


def relative_error(actual: Tensor, expected: Tensor) -> float:
    return float((actual.float() - expected).norm() / expected.norm())


def a_device(crossover: Crossover, monkeypatch: pytest.MonkeyPatch, *, wide_budget: int | None = None) -> CpuDevice:
    """As it would be on a CPU with that ``crossover``; ``wide_budget`` in bytes."""
    device = CpuDevice(num_threads=None, block_size=16)
    monkeypatch.setattr(device, "_crossover", crossover)
    if wide_budget is not None:
        monkeypatch.setattr(device, "_wide_budget", wide_budget)
    return device


@CPUS
@pytest.mark.parametrize("num_rows", ROWS)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("weight", [int4(96, 64), int4(50, 96), int8(80, 64)], ids=["int4", "int4 uneven", "int8"])
@pytest.mark.parametrize("wide_copies", [True, False])
def test_close_to_the_wide_product(
    monkeypatch: pytest.MonkeyPatch,
    crossover: Crossover,
    weight: LinearWeight,
    num_rows: int,
    *,
    biased: bool,
    wide_copies: bool,
) -> None:
    device = a_device(crossover, monkeypatch, wide_budget=None if wide_copies else 0)
    bias = torch.randn(weight.shape[0]).to(torch.bfloat16) if biased else None
    linear = device.linear(weight, bias, torch.bfloat16)
    assert isinstance(linear, BatchSizeLinear) == wide_copies
    x = torch.randn(num_rows, weight.shape[1]).to(torch.bfloat16)
    expected = x.float() @ widen(weight).t() + (0 if bias is None else bias.float())
    actual = linear(x)
    assert actual.shape == expected.shape
    assert actual.dtype == x.dtype
    assert relative_error(actual, expected) < 0.01


@CPUS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_plain_weights_get_a_copy_where_their_own_type_is_slow(
    monkeypatch: pytest.MonkeyPatch, crossover: Crossover, dtype: torch.dtype
) -> None:
    device = a_device(crossover, monkeypatch)
    weight = torch.randn(96, 64).to(dtype)
    linear = device.linear(weight, None, dtype)
    is_slow = crossover is WITHOUT_BFLOAT16 and dtype == torch.bfloat16
    assert isinstance(linear, BatchSizeLinear) == is_slow
    for num_rows in ROWS:
        x = torch.randn(num_rows, 64).to(dtype)
        assert linear(x).dtype == dtype
        assert relative_error(linear(x), x.float() @ weight.float().t()) < 0.01


def test_many_rows_are_computed_in_a_type_the_cpu_has(monkeypatch: pytest.MonkeyPatch) -> None:
    device = a_device(WITHOUT_BFLOAT16, monkeypatch)
    seen: list[torch.dtype] = []
    linear = functional.linear

    def noting(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        seen.append(torch.promote_types(x.dtype, weight.dtype))
        return linear(x, weight, bias)

    monkeypatch.setattr(functional, "linear", noting)
    for weight in (int4(96, 64), int8(80, 64), torch.randn(96, 64).to(torch.bfloat16)):
        device.linear(weight, None, torch.bfloat16)(torch.randn(512, 64).to(torch.bfloat16))
    assert seen == [torch.float32] * 3


@pytest.mark.parametrize("has_bfloat16", [True, False])
def test_the_machine_is_asked(monkeypatch: pytest.MonkeyPatch, *, has_bfloat16: bool) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: has_bfloat16)
    assert cpu_linear.crossover() is (WITH_BFLOAT16 if has_bfloat16 else WITHOUT_BFLOAT16)


@CPUS
def test_wide_copies_stop_at_their_budget(monkeypatch: pytest.MonkeyPatch, crossover: Crossover) -> None:
    device = a_device(crossover, monkeypatch, wide_budget=3 * 96 * 64 * crossover.dtype.itemsize)
    kinds = [type(device.linear(int4(96, 64), None, torch.bfloat16)) for _ in range(5)]
    assert kinds.count(BatchSizeLinear) == 3
