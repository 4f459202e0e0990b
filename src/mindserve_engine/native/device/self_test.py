"""What a device computes against a float32 reference on the CPU, before anything is served.

The documents of fused operators contradict each other, and their limits move with every release: whether this
machine computes this model's attention is asked of the machine."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from mindserve_engine.first_line import first_line
from mindserve_engine.interface import EngineError
from mindserve_engine.native.batch import StepBatch
from mindserve_engine.native.device.base import AttentionShape, AttentionSpec, Device, DeviceBatch

_TOLERANCE: Final = {torch.bfloat16: 0.03, torch.float16: 0.005, torch.float32: 1e-4}
"""Of the largest difference, relative to the largest number: what rounding explains."""
_EPS: Final = 1e-6
_WIDTH: Final = 256
_STEPS: Final = ((130, 69), (5, 1))
"""New tokens of each sequence: whole prompts over a block's border, then a chunk beside a decode row."""


class TestedDevice(Device, Protocol):
    """With the operator that ``NpuLayer`` uses."""

    def rotate_both(self, query: Tensor, key: Tensor, factors: Any) -> tuple[Tensor, Tensor]: ...


def check_operators(device: TestedDevice, shape: AttentionShape, dtype: torch.dtype) -> None:
    """Raise ``EngineError`` that names the operator which cannot be run or gives wrong numbers."""
    name = "its operators"
    try:
        with torch.inference_mode():
            for name, actual, expected in _results(device, shape, dtype):
                error = float((actual.float().cpu() - expected).abs().max() / expected.abs().max())
                if not error < _TOLERANCE[dtype]:
                    raise EngineError(
                        f"device: {device.name}: self-test: {name} is off by {error:.1%} in {dtype} with heads of "
                        f"{shape.head_dim}; nothing is served with wrong numbers"
                    )
    except (RuntimeError, TypeError, NotImplementedError) as error:
        raise EngineError(
            f"device: {device.name}: self-test: what follows {name} cannot be run in {dtype} with heads of "
            f"{shape.head_dim} ({first_line(error)})"
        ) from error


def _results(device: TestedDevice, shape: AttentionShape, dtype: torch.dtype) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Name, what the device gives, and what is right."""
    random = torch.Generator().manual_seed(1)

    def numbers(*sizes: int) -> tuple[Tensor, Tensor]:
        rounded = torch.randn(*sizes, generator=random).to(dtype)
        return rounded.to(device.torch_device), rounded.float()

    (x, x_32), (residual, residual_32), (weight, weight_32) = numbers(7, _WIDTH), numbers(7, _WIDTH), numbers(_WIDTH)
    yield "the norm", device.norm(x, weight, _EPS), _norm(x_32, weight_32)
    normed, total = device.add_norm(x, residual, weight, _EPS)
    yield "the norm of a sum", normed, _norm(x_32 + residual_32, weight_32)
    yield "the sum", total, x_32 + residual_32
    gate, up = x_32.chunk(2, dim=-1)
    yield "swiglu", device.swiglu(x), functional.silu(gate) * up
    yield from _attention_results(device, shape, numbers, dtype)


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    return functional.rms_norm(x, weight.shape, weight, _EPS)


@dataclass(slots=True)
class _History:
    """Keys and values of one sequence, [L, KV, D] float32."""

    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)


def _attention_results(
    device: TestedDevice, shape: AttentionShape, numbers: Any, dtype: torch.dtype
) -> Iterator[tuple[str, Tensor, Tensor]]:
    heads, kv_heads, head_dim = shape.heads, shape.kv_heads, shape.head_dim
    tables = _block_tables(device.block_size)
    num_blocks = 1 + max(max(blocks) for blocks in tables)
    [cache] = device.kv_cache(
        num_layers=1,
        num_blocks=num_blocks,
        block_size=device.block_size,
        kv_heads=kv_heads,
        head_dim=head_dim,
        dtype=dtype,
    )
    spec = AttentionSpec(scale=head_dim**-0.5)
    histories = [_History() for _ in tables]
    lengths = [0] * len(tables)
    for news in _STEPS:
        batch = _step(tables, lengths, news, device.block_size)
        uploaded = device.upload(batch)
        num_tokens = len(batch.token_ids)
        (query, query_32), (key, key_32) = numbers(num_tokens, heads, head_dim), numbers(num_tokens, kv_heads, head_dim)
        value, value_32 = numbers(num_tokens, kv_heads, head_dim)
        cos, sin = _factors(batch.positions, head_dim, dtype)
        factors = device.rotary_factors(cos.to(device.torch_device), sin.to(device.torch_device))
        query, key = device.rotate_both(query, key, factors)
        query_32, key_32 = _rotate(query_32, cos, sin), _rotate(key_32, cos, sin)
        yield "the rotation of queries", query, query_32
        yield "the rotation of keys", key, key_32
        mixed = _write_and_attend(device, query, key, value, cache, uploaded, spec)
        yield "attention", mixed, _attend(batch, histories, query_32, key_32, value_32)


def _write_and_attend(
    device: TestedDevice,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cache: Any,
    batch: DeviceBatch,
    spec: AttentionSpec,
) -> Tensor:
    device.write_kv(key, value, cache, batch)
    return device.attention(query, key, value, cache, batch, spec)


def _block_tables(block_size: int) -> list[list[int]]:
    """Of each sequence: neither in order nor side by side."""
    sizes = [-(-sum(news) // block_size) for news in zip(*_STEPS, strict=True)]
    blocks = iter(range(2 * sum(sizes), 0, -2))
    return [[next(blocks) for _ in range(size)] for size in sizes]


def _step(tables: list[list[int]], lengths: list[int], news: tuple[int, ...], block_size: int) -> StepBatch:
    """The next tokens of each sequence, whose ``lengths`` grow."""
    batch = StepBatch()
    for row, (blocks, num_new) in enumerate(zip(tables, news, strict=True)):
        positions = range(lengths[row], lengths[row] + num_new)
        lengths[row] += num_new
        batch.token_ids += [0] * num_new
        batch.positions += positions
        batch.slots += [blocks[p // block_size] * block_size + p % block_size for p in positions]
        batch.query_ends.append(len(batch.token_ids))
        batch.kv_lengths.append(lengths[row])
        batch.block_tables.append(list(blocks[: -(-lengths[row] // block_size)]))
    return batch


def _factors(positions: list[int], head_dim: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    frequencies = 1e4 ** -(torch.arange(0, head_dim, 2) / head_dim)
    angles = (torch.tensor(positions)[:, None] * frequencies).repeat(1, 2)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos.float()[:, None] + torch.cat([-second, first], dim=-1) * sin.float()[:, None]


def _attend(batch: StepBatch, histories: list[_History], query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Each sequence by itself, over all its keys and values; [T, H * D]."""
    parts = []
    start = 0
    for end, history in zip(batch.query_ends, histories, strict=True):
        history.keys.append(key[start:end])
        history.values.append(value[start:end])
        keys, values = torch.cat(history.keys), torch.cat(history.values)
        parts.append(_causal(query[start:end], keys, values))
        start = end
    return torch.cat(parts)


def _causal(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    num_new, heads, head_dim = query.shape
    group = heads // keys.shape[1]
    keys, values = keys.repeat_interleave(group, dim=1), values.repeat_interleave(group, dim=1)
    scores = torch.einsum("qhd,khd->hqk", query, keys) / math.sqrt(head_dim)
    hidden = torch.ones(num_new, len(keys), dtype=torch.bool).triu(len(keys) - num_new + 1)
    weights = scores.masked_fill(hidden, -math.inf).softmax(dim=-1)
    return torch.einsum("hqk,khd->qhd", weights, values).reshape(num_new, -1)
