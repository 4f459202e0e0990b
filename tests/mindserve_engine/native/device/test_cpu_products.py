"""Products with quantised weights in whole numbers, against float64 with the same rounding written out."""

from __future__ import annotations

import ctypes
import platform
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mindserve_engine.native.device import cpu_build
from mindserve_engine.native.device.cpu_compiled import CompiledCpuDevice
from mindserve_engine.native.device.cpu_products import PanelLinear
from mindserve_engine.native.weights.quantised import GROUP, Int4Weight, Int8Weight
from tests.mindserve_engine.native.device.devices import make_device

SHAPES = pytest.mark.parametrize(("outputs", "inputs"), [(48, 64), (50, 96), (3, 32), (576, 1536)])
BITS = pytest.mark.parametrize("bits", [4, 8])


@pytest.fixture(scope="module")
def device() -> CompiledCpuDevice:
    made = make_device("compiled")
    assert isinstance(made, CompiledCpuDevice)
    if not made.has_products:
        pytest.skip("this processor has no AVX2")
    return made


def a_weight(bits: int, outputs: int, inputs: int) -> Int4Weight | Int8Weight:
    generator = torch.Generator().manual_seed(outputs)
    scale = torch.rand(outputs, inputs // GROUP, generator=generator).half().float()
    if bits == 8:
        codes = torch.randint(-128, 128, (outputs, inputs), generator=generator)
        return Int8Weight(codes.to(torch.int8), scale)
    minimum = (torch.randn(scale.shape, generator=generator) * 8).half().float()
    return Int4Weight(torch.randint(0, 16, (outputs, inputs), generator=generator).to(torch.uint8), scale, minimum)


def rounded(x: Tensor) -> Tensor:
    """What 8 bits with one scale per 32 numbers leave of ``x``; a number that outweighs its group stays as it is."""
    groups = x.float().unflatten(1, (-1, GROUP))
    size = groups.abs()
    top = size.amax(dim=-1, keepdim=True)
    outweighs = (size == top) & (2 * top**2 > groups.square().sum(dim=-1, keepdim=True))
    rest = torch.where(outweighs, 0, groups)
    top = rest.abs().amax(dim=-1, keepdim=True)
    inverse = torch.full_like(top, 127) / top  # `127 / top` would be a reciprocal, rounded, times 127
    eight_bits = (rest * inverse).round().nan_to_num() * (top / 127)
    return torch.where(outweighs, groups, eight_bits).view(x.shape)


def activations(num_rows: int, inputs: int) -> Tensor:
    """A few inputs are far above the others, some by row, as in trained models."""
    x = torch.randn(num_rows, inputs, generator=torch.Generator().manual_seed(num_rows))
    x[:, 5::70] *= 40
    x[::3, 20::90] *= 40
    return x


@SHAPES
@BITS
@pytest.mark.parametrize("num_rows", [0, 1, 2, 3, 4, 7, 300])
def test_the_product_is_that_of_the_rounded_activations(
    device: CompiledCpuDevice, bits: int, outputs: int, inputs: int, num_rows: int
) -> None:
    weight, bias = a_weight(bits, outputs, inputs), torch.randn(outputs)
    linear = device.linear(weight, bias, torch.float32)
    assert isinstance(linear, PanelLinear)
    x = activations(num_rows, inputs)
    actual = linear(x)
    expected = rounded(x).double() @ weight.dequantise().double().T + bias.double()
    assert actual.shape == (num_rows, outputs)
    error = 2e-5
    largest = float(expected.abs().max()) if num_rows else 0
    torch.testing.assert_close(actual.double(), expected, rtol=error, atol=error * largest)


@BITS
def test_what_is_next_to_a_great_number_is_not_lost(device: CompiledCpuDevice, bits: int) -> None:
    """8 bits beside a number a thousand times greater would be a zero."""
    weight = a_weight(bits, 48, 64)
    x = torch.randn(5, 64)
    x[:, 7] = 1000.0
    actual = device.linear(weight, None, torch.float32)(x)
    small = actual.double() - 1000.0 * weight.dequantise()[:, 7].double()
    x[:, 7] = 0
    expected = x.double() @ weight.dequantise().double().T
    assert float((small - expected).norm() / expected.norm()) < 0.02


@BITS
def test_a_row_is_the_same_to_the_bit_in_any_company(device: CompiledCpuDevice, bits: int) -> None:
    linear = device.linear(a_weight(bits, 200, 576), None, torch.float32)
    x = activations(700, 576)
    together = linear(x)
    for row in (0, 1, 2, 3, 350, 699):
        assert torch.equal(linear(x[row : row + 1])[0], together[row])


@BITS
def test_rows_of_a_wider_matrix(device: CompiledCpuDevice, bits: int) -> None:
    linear = device.linear(a_weight(bits, 48, 64), None, torch.float32)
    wide = torch.randn(9, 200)
    assert torch.equal(linear(wide[:, 100:164]), linear(wide[:, 100:164].contiguous()))
    assert torch.equal(linear(wide.T[:64].T), linear(wide[:, :64].contiguous()))


@BITS
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_stays_none(device: CompiledCpuDevice, bits: int, bad: float) -> None:
    """A broken model must be seen to be broken; a neighbour's row must not suffer."""
    x = torch.randn(3, 64)
    x[1, 40] = bad
    out = device.linear(a_weight(bits, 48, 64), None, torch.float32)(x)
    assert not out[1].isfinite().any()
    assert out[[0, 2]].isfinite().all()


@BITS
def test_zeros(device: CompiledCpuDevice, bits: int) -> None:
    assert not device.linear(a_weight(bits, 48, 64), None, torch.float32)(torch.zeros(2, 64)).any()


def test_scales_beyond_float16_are_left_to_torch(device: CompiledCpuDevice) -> None:
    weight = a_weight(4, 48, 64)
    weight.scale[3, 1] = 1e5
    assert not isinstance(device.linear(weight, None, torch.float32), PanelLinear)


def test_quantised_models_compute_in_float32(device: CompiledCpuDevice) -> None:
    assert device.compute_dtype(torch.bfloat16, quantised=True) == torch.float32


@pytest.fixture(scope="module")
def with_vnni(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernels as processors with VNNI get them, its instruction written out where this one has it not."""
    return ctypes.CDLL(str(compiled(tmp_path_factory.mktemp("vnni"), "-march=native", "-DMINDSERVE_EMULATED_VNNI")))


def compiled(folder: Path, *flags: str) -> Path:
    compiler = cpu_build._find_compiler()
    assert compiler is not None
    source = Path(cpu_build.__file__).with_name("cpu_products.cpp")
    target = folder / "products.so"
    optimised = ("-std=c++17", "-O2", "-fopenmp", "-fPIC", "-shared", *flags)
    subprocess.run([compiler, *optimised, str(source), "-o", str(target)], check=True)
    return target


@BITS
@SHAPES
@pytest.mark.parametrize("num_rows", [1, 3, 7, 8, 21])
def test_vnni_gives_the_same_bits(
    device: CompiledCpuDevice, with_vnni: ctypes.CDLL, bits: int, outputs: int, inputs: int, num_rows: int
) -> None:
    linear = device.linear(a_weight(bits, outputs, inputs), torch.randn(outputs), torch.float32)
    assert isinstance(linear, PanelLinear)
    x = activations(num_rows, inputs)
    expected = linear(x)
    with_vnni.mindserve_product.argtypes = device._product.argtypes
    linear._product = with_vnni.mindserve_product
    assert linear(x).equal(expected)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="VNNI is an extension of x86-64")
@pytest.mark.parametrize("flags", [("-march=cascadelake",), ("-march=haswell", "-mavxvnni")])
def test_vnni_is_used_where_there_is_one(tmp_path: Path, flags: tuple[str, ...]) -> None:
    assert b"dpbusd" in subprocess.check_output(["objdump", "-d", str(compiled(tmp_path, *flags))])
