"""The compiled kernels against torch's operators in float64. Attention has its own tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.mindserve_engine.native.device.devices import make_device

EACH_TYPE = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
ROWS = pytest.mark.parametrize("num_rows", [1, 3, 200])
EPS = 1e-5


def close(actual: Tensor, expected: Tensor) -> None:
    """To a rounding of the result, or of float32 along the way."""
    error = {torch.float32: 2e-6, torch.bfloat16: 4.1e-3, torch.float16: 5.1e-4}[actual.dtype]
    torch.testing.assert_close(actual.double(), expected, rtol=error, atol=error)


def normed(x: Tensor, weight: Tensor) -> Tensor:
    return functional.rms_norm(x.double(), x.shape[-1:], None, EPS) * weight.double()


@EACH_TYPE
@ROWS
@pytest.mark.parametrize("dim", [7, 64, 576])
def test_norms(num_rows: int, dim: int, dtype: torch.dtype) -> None:
    device = make_device("compiled")
    x, residual = torch.randn(2, num_rows, dim).to(dtype)
    weight = torch.randn(dim).to(dtype)
    close(device.norm(x, weight, EPS), normed(x, weight))
    out, total = device.add_norm(x, residual, weight, EPS)
    close(total, x.double() + residual.double())
    close(out, normed(total, weight))


@EACH_TYPE
def test_norm_of_heads_in_a_fused_projection(dtype: torch.dtype) -> None:
    projected = torch.randn(5, 6, 32).to(dtype)
    heads, weight = projected[:, :4], torch.randn(4, 32).to(dtype)
    close(make_device("compiled").norm(heads, weight, EPS), normed(heads, weight))


@EACH_TYPE
@ROWS
@pytest.mark.parametrize("dim", [6, 64, 80])
def test_rotary(num_rows: int, dim: int, dtype: torch.dtype) -> None:
    device = make_device("compiled")
    x = torch.randn(num_rows, 6, dim).to(dtype)[:, :4]
    angle = torch.rand(num_rows, dim // 2).repeat(1, 2) * 100
    cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
    low, high = x.double().chunk(2, dim=-1)
    expected = x.double() * cos.double()[:, None] + torch.cat([-high, low], dim=-1) * sin.double()[:, None]
    close(device.rotary(x, device.rotary_factors(cos, sin)), expected)


@EACH_TYPE
@ROWS
def test_swiglu(num_rows: int, dtype: torch.dtype) -> None:
    gate_up = (torch.randn(num_rows, 2 * 50) * 10).to(dtype)
    gate, up = gate_up.double().chunk(2, dim=-1)
    close(make_device("compiled").swiglu(gate_up), functional.silu(gate) * up)


@EACH_TYPE
def test_the_exponential_holds_from_end_to_end(dtype: torch.dtype) -> None:
    gate = torch.cat([torch.linspace(-120, 120, 100_001), torch.tensor([0.0, -6e4, 6e4])]).to(dtype)
    actual = make_device("compiled").swiglu(torch.stack([gate, torch.ones_like(gate)]).T.contiguous())
    torch.testing.assert_close(actual[:, 0], functional.silu(gate.double()).to(dtype), rtol=1e-2, atol=1e-30)
    assert not actual[gate < 0].isnan().any()


@EACH_TYPE
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_no_number_stays_none(bad: float, dtype: torch.dtype) -> None:
    """A broken model must be seen to be broken."""
    device = make_device("compiled")
    x = torch.randn(2, 64).to(dtype)
    x[1, 3] = bad
    calls: list[Callable[[], Tensor]] = [
        lambda: device.norm(x, torch.ones(64, dtype=dtype), EPS),
        lambda: device.swiglu(x * torch.tensor([-1.0, 1.0]).repeat_interleave(32).to(dtype)) * bad * 0,
    ]
    for call in calls:
        assert call()[1].isnan().any()


def test_the_rows_of_one_sequence_do_not_depend_on_their_neighbours() -> None:
    device = make_device("compiled")
    x, residual = torch.randn(2, 300, 576).to(torch.bfloat16)
    weight = torch.randn(576).to(torch.bfloat16)
    together = device.add_norm(x, residual, weight, EPS)
    for row in (0, 150, 299):
        alone = device.add_norm(x[row : row + 1], residual[row : row + 1], weight, EPS)
        assert torch.equal(alone[0][0], together[0][row])
        assert torch.equal(alone[1][0], together[1][row])
