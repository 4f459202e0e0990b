"""Products with quantised weights on CPU against products with the weights written out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mindserve_engine.native.device import cpu_linear
from mindserve_engine.native.device.cpu import CpuDevice
from mindserve_engine.native.device.cpu_linear import BatchSizeLinear, HalfLinear, PlainLinear
from mindserve_engine.native.weights.quantised import Int4Weight, Int8Weight, LinearWeight, widen

ROWS = [1, 2, 4, 5, 8, 9, 12, 13, 32, 33, 49]
DTYPES_HELD = (torch.bfloat16, torch.float16, torch.float32)
DTYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])


def int4(outputs: int, inputs: int) -> Int4Weight:
    generator = torch.Generator().manual_seed(outputs)
    scale = torch.rand(outputs, inputs // 32, generator=generator) * 0.02
    codes = torch.randint(0, 16, (outputs, inputs), generator=generator).to(torch.uint8)
    return Int4Weight(codes, scale, -7.5 * scale)


def int8(outputs: int, inputs: int) -> Int8Weight:
    return Int8Weight.quantise(torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(1)) * 0.05)


def relative_error(actual: Tensor, expected: Tensor) -> float:
    return float((actual.float() - expected).norm() / expected.norm())


def a_device(*, wide_budget: int | None = None) -> CpuDevice:
    """``wide_budget`` in bytes."""
    device = CpuDevice(num_threads=None, block_size=16)
    if wide_budget is not None:
        device._wide_budget = wide_budget
    return device


@pytest.fixture(params=["fbgemm", "no fbgemm"])
def _fbgemm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With torch's FBGEMM and as on processors for which it is not built."""
    if request.param == "no fbgemm":
        monkeypatch.setattr(cpu_linear, "can_be_half", lambda _weight: False)
        monkeypatch.setattr("mindserve_engine.native.device.cpu.can_be_half", lambda _weight: False)


@DTYPES
@pytest.mark.usefixtures("_fbgemm")
@pytest.mark.parametrize("num_rows", ROWS)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(
    "weight",
    [int4(96, 64), int4(50, 96), int8(80, 64), torch.randn(48, 64).to(torch.bfloat16)],
    ids=["int4", "int4 uneven", "int8", "bfloat16"],
)
@pytest.mark.parametrize("wide_copies", [True, False])
def test_close_to_the_wide_product(
    weight: LinearWeight, dtype: torch.dtype, num_rows: int, *, biased: bool, wide_copies: bool
) -> None:
    device = a_device(wide_budget=None if wide_copies else 0)
    bias = torch.randn(weight.shape[0]).to(dtype) if biased else None
    linear = device.linear(weight, bias, dtype)
    x = torch.randn(num_rows, weight.shape[1]).to(dtype)
    expected = x.float() @ widen(weight).float().t() + (0 if bias is None else bias.float())
    actual = linear(x)
    assert actual.shape == expected.shape
    assert actual.dtype == x.dtype
    assert relative_error(actual, expected) < 0.01


@pytest.mark.parametrize("weight", [int4(96, 64), int8(80, 64), torch.randn(96, 64).to(torch.bfloat16)])
def test_many_rows_with_float32_arithmetic_lose_nothing(weight: LinearWeight) -> None:
    """bfloat16 would be off by more than a thousandth."""
    x = torch.randn(64, 64)
    assert relative_error(a_device().linear(weight, None, torch.float32)(x), x @ widen(weight).float().t()) < 5e-4


def test_weights_beyond_float16_keep_their_values() -> None:
    weight = torch.randn(96, 64).to(torch.bfloat16)
    weight[3, 5] = 1e6
    x = torch.randn(64, 64)
    linear = a_device().linear(weight, None, torch.float32)
    assert isinstance(linear, PlainLinear)
    assert relative_error(linear(x), x @ weight.float().t()) < 1e-5


def test_half_weights_stand_instead_of_bfloat16_ones_not_beside_them() -> None:
    """They cost no memory, so they need no budget."""
    device = a_device(wide_budget=0)
    for weight in (int8(80, 64), torch.randn(96, 64).to(torch.bfloat16)):
        assert isinstance(device.linear(weight, None, torch.float32), HalfLinear)


@pytest.mark.parametrize("has_it", [True, False])
def test_the_machine_is_asked(monkeypatch: pytest.MonkeyPatch, *, has_it: bool) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: has_it)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_fp16_supported", lambda: not has_it)
    device = a_device()
    for quantised in (True, False):
        types = {held: device.compute_dtype(held, quantised=quantised) for held in DTYPES_HELD}
        assert types == {
            torch.bfloat16: torch.bfloat16 if has_it else torch.float32,
            torch.float16: torch.float32 if has_it else torch.float16,
            torch.float32: torch.float32,
        }


@pytest.mark.usefixtures("_fbgemm")
@DTYPES
def test_wide_copies_stop_at_their_budget(dtype: torch.dtype) -> None:
    half = cpu_linear.can_be_half(torch.zeros(1)) or dtype == torch.bfloat16
    device = a_device(wide_budget=3 * 96 * 64 * (2 if half else 4))
    kinds = [type(device.linear(int4(96, 64), None, dtype)) for _ in range(5)]
    assert kinds.count(BatchSizeLinear) == 3
