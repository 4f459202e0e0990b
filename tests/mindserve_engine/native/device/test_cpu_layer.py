"""A layer in one call is the same to the bit as the operators it is made of."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mindserve_engine.native.batch import StepBatch
from mindserve_engine.native.device.base import AttentionSpec, LayerParts
from mindserve_engine.native.device.cpu_compiled import CompiledCpuDevice
from mindserve_engine.native.device.cpu_layer import CompiledLayer
from mindserve_engine.native.device.layer import OperatorLayer
from mindserve_engine.native.weights.quantised import GROUP, Int4Weight, Int8Weight, LinearWeight
from tests.mindserve_engine.native.device.devices import make_device

HIDDEN, INNER, HEADS, KV_HEADS, DIM, BLOCK = 64, 96, 4, 2, 16, 16
WIDE = (HEADS + 2 * KV_HEADS) * DIM


@pytest.fixture(scope="module")
def device() -> CompiledCpuDevice:
    made = make_device("compiled", block_size=BLOCK)
    assert isinstance(made, CompiledCpuDevice)
    if not made.has_products:
        pytest.skip("this processor has no AVX2")
    return made


def a_weight(outputs: int, inputs: int) -> LinearWeight:
    groups = (outputs, inputs // GROUP)
    codes = torch.randint(0, 16, (outputs, inputs), dtype=torch.uint8)
    return Int4Weight(codes, torch.rand(groups) * 0.02, torch.randn(groups) * 0.05)


def parts_of(
    device: CompiledCpuDevice, *, qk_norm: bool, biased: bool, window: int | None = None, plain: bool = False
) -> LayerParts:
    down: LinearWeight = Int8Weight.quantise(torch.randn(HIDDEN, INNER) * 0.1)
    if plain:
        down = torch.randn(HIDDEN, INNER)
    bias = torch.randn(WIDE) if biased else None
    return LayerParts(
        input_norm=torch.rand(HIDDEN),
        qkv=device.linear(a_weight(WIDE, HIDDEN), bias, torch.float32),
        qk_norm=torch.rand(HEADS + KV_HEADS, DIM) if qk_norm else None,
        output=device.linear(a_weight(HIDDEN, HEADS * DIM), None, torch.float32),
        post_norm=torch.rand(HIDDEN),
        gate_up=device.linear(a_weight(2 * INNER, HIDDEN), None, torch.float32),
        down=device.linear(down, None, torch.float32),
        heads=HEADS,
        kv_heads=KV_HEADS,
        head_dim=DIM,
        eps=1e-5,
        attention=AttentionSpec(scale=DIM**-0.5, window=window),
    )


def a_batch() -> StepBatch:
    """A prompt of 20 tokens and one token after 0."""
    batch = StepBatch()
    for table, length in (([3, 1], 20), ([2], 1)):
        batch.token_ids += [0] * length
        batch.positions += range(length)
        batch.slots += [table[p // BLOCK] * BLOCK + p % BLOCK for p in range(length)]
        batch.query_ends.append(len(batch.token_ids))
        batch.kv_lengths.append(length)
        batch.block_tables.append(table)
    return batch


def run(
    device: CompiledCpuDevice, parts: LayerParts, cache_dtype: torch.dtype, *, operators: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Two layers of the same weights: the second adds what the first fed forward. And the cache."""
    (cache,) = device.kv_cache(
        num_layers=1, num_blocks=4, block_size=BLOCK, kv_heads=KV_HEADS, head_dim=DIM, dtype=cache_dtype
    )
    batch = device.upload(a_batch())
    angles = torch.outer(torch.arange(21.0), torch.rand(DIM // 2, generator=torch.Generator().manual_seed(1)))
    factors = device.rotary_factors(angles.repeat(1, 2).cos(), angles.repeat(1, 2).sin())
    layer = OperatorLayer(device, parts) if operators else device.layer(parts)
    residual = torch.randn(21, HIDDEN, generator=torch.Generator().manual_seed(2))
    fed, residual = layer(None, residual, factors, batch, cache)
    fed, residual = layer(fed, residual, factors, batch, cache)
    return fed, residual, cache


@pytest.mark.parametrize("cache_dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_equals_its_operators(
    device: CompiledCpuDevice, cache_dtype: torch.dtype, *, qk_norm: bool, biased: bool
) -> None:
    parts = parts_of(device, qk_norm=qk_norm, biased=biased)
    assert isinstance(device.layer(parts), CompiledLayer)
    together = run(device, parts, cache_dtype, operators=False)
    for actual, expected in zip(together, run(device, parts, cache_dtype, operators=True), strict=True):
        assert torch.equal(actual, expected)
        assert actual.isfinite().all()


def test_steps_are_told_of_all_threads_though_models_are_loaded_with_fewer(device: CompiledCpuDevice) -> None:
    num_threads = torch.get_num_threads()
    with device.loading():
        layer = device.layer(parts_of(device, qk_norm=False, biased=False))
    assert isinstance(layer, CompiledLayer)
    cache = torch.zeros(2, 4, KV_HEADS, BLOCK, DIM)
    factors = (torch.zeros(21, 1, DIM), torch.zeros(21, 1, DIM))
    batch = device.upload(a_batch())
    layer(None, torch.zeros(21, HIDDEN), factors, batch, cache)
    assert batch.plan.step.threads == num_threads


def test_what_it_cannot_do_is_left_to_the_operators(device: CompiledCpuDevice) -> None:
    windowed = parts_of(device, qk_norm=False, biased=False, window=5)
    plain = parts_of(device, qk_norm=False, biased=False, plain=True)
    for parts in (windowed, plain):
        assert isinstance(device.layer(parts), OperatorLayer)
        run(device, parts, torch.float32, operators=False)
