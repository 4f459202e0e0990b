"""Products with quantised weights on CPU against products with the weights written out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mindserve_engine.native.device.cpu import CpuDevice
from mindserve_engine.native.device.cpu_linear import INT4_MAX_ROWS, INT8_MAX_ROWS, BatchSizeLinear
from mindserve_engine.native.weights.quantised import Int4Weight, Int8Weight, LinearWeight, widen

ROWS = [1, 2, INT8_MAX_ROWS, INT8_MAX_ROWS + 1, INT4_MAX_ROWS, INT4_MAX_ROWS + 1, 40]


def int4(outputs: int, inputs: int) -> Int4Weight:
    generator = torch.Generator().manual_seed(outputs)
    scale = torch.rand(outputs, inputs // 32, generator=generator) * 0.02
    codes = torch.randint(0, 16, (outputs, inputs), generator=generator).to(torch.uint8)
    return Int4Weight(codes, scale, -7.5 * scale)


def int8(outputs: int, inputs: int) -> Int8Weight:
    return Int8Weight.quantise(torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(1)) * 0.05)


def relative_error(actual: Tensor, expected: Tensor) -> float:
    return float((actual.float() - expected).norm() / expected.norm())


@pytest.mark.parametrize("num_rows", ROWS)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("weight", [int4(96, 64), int4(50, 96), int8(80, 64)], ids=["int4", "int4 uneven", "int8"])
@pytest.mark.parametrize("wide_copies", [True, False])
def test_close_to_the_wide_product(
    monkeypatch: pytest.MonkeyPatch, weight: LinearWeight, num_rows: int, *, biased: bool, wide_copies: bool
) -> None:
    device = CpuDevice(num_threads=None, block_size=16)
    if not wide_copies:
        monkeypatch.setattr(device, "_wide_budget", 0)
    bias = torch.randn(weight.shape[0]).to(torch.bfloat16) if biased else None
    linear = device.linear(weight, bias, torch.bfloat16)
    assert isinstance(linear, BatchSizeLinear) == wide_copies
    x = torch.randn(num_rows, weight.shape[1]).to(torch.bfloat16)
    expected = x.float() @ widen(weight).t() + (0 if bias is None else bias.float())
    actual = linear(x)
    assert actual.shape == expected.shape
    assert relative_error(actual, expected) < 0.01


def test_wide_copies_stop_at_their_budget() -> None:
    device = CpuDevice(num_threads=None, block_size=16)
    device._wide_budget = 3 * 96 * 64 * 2
    kinds = [type(device.linear(int4(96, 64), None, torch.bfloat16)) for _ in range(5)]
    assert kinds.count(BatchSizeLinear) == 3
