"""What a device computes against a float32 reference on the CPU, before anything is served.

The documents of fused operators contradict each other, and their limits move with every release: whether this
machine computes this model's attention is asked of the machine."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from mindserve_engine.first_line import first_line
from mindserve_engine.interface import EngineError
from mindserve_engine.native.batch import Sampled, SampleRow, StepBatch
from mindserve_engine.native.device.base import AttentionShape, AttentionSpec, Device, DeviceBatch, LayerWidths
from mindserve_engine.native.sampling.sampler import Sampler
from mindserve_engine.types import SamplingParams

_TOLERANCE: Final = {torch.bfloat16: 0.03, torch.float16: 0.005, torch.float32: 1e-4}
"""Of a row's largest difference, relative to its largest number: what rounding explains."""
_EPS: Final = 1e-6
_WIDTH: Final = 256
_LEFT_BEHIND: Final = 100.0
"""In all of the cache before it is written: whoever reads behind a sequence's end shows it."""
_VOCAB_SIZE: Final = 1000
_NUM_TOP: Final = 3
_SAMPLED: Final = (
    SamplingParams(temperature=0.0),
    SamplingParams(seed=1),
    SamplingParams(seed=2, temperature=0.7, top_k=20),
    SamplingParams(seed=3, top_p=0.8),
    SamplingParams(seed=4, temperature=1.5, top_k=50, top_p=0.5),
    SamplingParams(temperature=0.0, repetition_penalty=1.5),
    SamplingParams(temperature=0.0, presence_penalty=2.0, frequency_penalty=1.0),
    SamplingParams(temperature=0.0, logit_bias=((7, 30.0),)),
)
"""Side by side, one row each."""


def _steps(block_size: int) -> dict[str, tuple[int, ...]]:
    """New tokens of each of three sequences: one over several blocks, one that stays in its first, one that comes to
    its second by decoding."""
    return {
        "prefill": (2 * block_size + 5, 69 % block_size, block_size - 1),
        "a chunk beside decode rows": (block_size + 3, 1, 1),
        "decode": (1, 1, 1),
        "a chunk within a block": (9, 1, 1),
        "decode once more": (1, 1, 1),
    }


def check_operators(
    device: Device,
    shape: AttentionShape,
    dtype: torch.dtype,
    spec: AttentionSpec,
    widths: LayerWidths | None = None,
) -> None:
    """Raise ``EngineError`` that names the operator which cannot be run or gives wrong numbers."""
    name = "its operators"
    if spec.window is not None:  # at the test's few tokens too
        spec = replace(spec, window=min(spec.window, device.block_size + 3))
    try:
        with torch.inference_mode():
            for name, actual, expected in _results(device, shape, dtype, spec, widths):
                error = _difference(actual.float().cpu(), expected)
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


def _difference(actual: Tensor, expected: Tensor) -> float:
    """Of the row that is furthest off: what attends over many tokens is small beside what attends over few."""
    rows = [(one - other).abs().amax() / other.abs().amax() for one, other in zip(actual, expected, strict=True)]
    return float(torch.stack(rows).max())


def _results(
    device: Device, shape: AttentionShape, dtype: torch.dtype, spec: AttentionSpec, widths: LayerWidths | None
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Name, what the device gives, and what is right."""
    random = torch.Generator().manual_seed(1)

    def numbers(*sizes: int) -> tuple[Tensor, Tensor]:
        rounded = torch.randn(*sizes, generator=random).to(dtype)
        return rounded.to(device.torch_device), rounded.float()

    small = LayerWidths(hidden=_WIDTH, inner=_WIDTH // 2)
    for each in [small] if widths is None else [small, widths]:
        yield from _small_results(device, each, numbers)
    yield from _attention_results(device, shape, numbers, dtype, spec)
    yield from _linear_results(device, numbers, dtype)
    yield from _copy_results(device, shape, numbers, dtype)
    yield from _sampling_results(device, random)


def _small_results(device: Device, widths: LayerWidths, numbers: Any) -> Iterator[tuple[str, Tensor, Tensor]]:
    hidden = widths.hidden
    (x, x_32), (residual, residual_32), (weight, weight_32) = numbers(7, hidden), numbers(7, hidden), numbers(hidden)
    yield f"the norm of {hidden}", device.norm(x, weight, _EPS), _norm(x_32, weight_32)
    normed, total = device.add_norm(x, residual, weight, _EPS)
    yield f"the norm of a sum of {hidden}", normed, _norm(x_32 + residual_32, weight_32)
    yield f"the sum of {hidden}", total, x_32 + residual_32
    gate_up, gate_up_32 = numbers(7, 2 * widths.inner)
    gate, up = gate_up_32.chunk(2, dim=-1)
    yield f"swiglu of {widths.inner}", device.swiglu(gate_up), functional.silu(gate) * up


def _linear_results(device: Device, numbers: Any, dtype: torch.dtype) -> Iterator[tuple[str, Tensor, Tensor]]:
    (x, x_32), (_, weight), (_, bias) = numbers(7, _WIDTH), numbers(96, _WIDTH), numbers(96)
    yield "a linear layer", device.linear(weight, bias, dtype)(x), functional.linear(x_32, weight, bias)


def _copy_results(
    device: Device, shape: AttentionShape, numbers: Any, dtype: torch.dtype
) -> Iterator[tuple[str, Tensor, Tensor]]:
    caches = device.kv_cache(
        num_layers=2,
        num_blocks=4,
        block_size=device.block_size,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        dtype=dtype,
    )
    halves: list[Tensor] = [half for pair in caches for half in pair]
    expected = []
    for half in halves:
        written, written_32 = numbers(*half.shape)
        half.copy_(written)
        expected.append(written_32[[0, 3, 0, 3]])
    device.copy_blocks(caches, [(0, 2), (3, 1)])
    for half, right in zip(halves, expected, strict=True):
        yield "a copy of blocks", half.flatten(1), right.flatten(1)


def _sampling_results(device: Device, random: torch.Generator) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Each token is one of the vocabulary, right or wrong; log-probabilities are numbers."""
    logits = 3 * torch.randn(len(_SAMPLED), _VOCAB_SIZE, generator=random)
    likeliest = logits.topk(4).indices.tolist()
    rows = [
        SampleRow(
            sequence_id=number,
            row=number,
            params=params,
            index=0,
            position=2,
            prompt_token_ids=[5, *likeliest[number][:1]],
            output_token_ids=likeliest[number][1:3],
            num_logprobs=_NUM_TOP if number < 4 else None,
        )
        for number, params in enumerate(_SAMPLED)
    ]
    sampler = Sampler(device.sum_dtype, device.host_buffer)
    actual = sampler.sample(logits.clone().to(device.torch_device), rows)  # which it may change
    expected = Sampler().sample(logits, rows)
    yield "sampling", _one_hot(actual), _one_hot(expected)
    yield "log-probabilities", _logprobs(actual), _logprobs(expected)


def _one_hot(results: list[Sampled]) -> Tensor:
    tokens = [one.token_id for one in results]
    tops = [token for one in results if one.logprobs is not None for token in one.logprobs.top_token_ids]
    return functional.one_hot(torch.tensor(tokens + tops), _VOCAB_SIZE).float()


def _logprobs(results: list[Sampled]) -> Tensor:
    told = [one.logprobs for one in results if one.logprobs is not None]
    return torch.tensor([[one.logprob, *one.top_logprobs] for one in told])


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    return functional.rms_norm(x, weight.shape, weight, _EPS)


@dataclass(slots=True)
class _History:
    """Keys and values of one sequence, [L, KV, D] float32."""

    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)


def _attention_results(
    device: Device, shape: AttentionShape, numbers: Any, dtype: torch.dtype, spec: AttentionSpec
) -> Iterator[tuple[str, Tensor, Tensor]]:
    heads, kv_heads, head_dim = shape.heads, shape.kv_heads, shape.head_dim
    steps = _steps(device.block_size)
    tables = _block_tables(list(steps.values()), device.block_size)
    num_blocks = 1 + max(max(blocks) for blocks in tables)
    [cache] = device.kv_cache(
        num_layers=1,
        num_blocks=num_blocks,
        block_size=device.block_size,
        kv_heads=kv_heads,
        head_dim=head_dim,
        dtype=dtype,
    )
    for half in cache:
        half.fill_(_LEFT_BEHIND)
    histories = [_History() for _ in tables]
    lengths = [0] * len(tables)
    for name, news in steps.items():
        batch = _step(tables, lengths, news, device.block_size)
        uploaded = device.upload(batch)
        num_tokens = len(batch.token_ids)
        query_key, query_key_32 = numbers(num_tokens, heads + kv_heads, head_dim)
        value, value_32 = numbers(num_tokens, kv_heads, head_dim)
        cos, sin = _factors(batch.positions, head_dim, dtype)
        factors = device.rotary_factors(cos.to(device.torch_device), sin.to(device.torch_device))
        query, key = device.rotate(query_key, heads, factors)
        query_32, key_32 = _rotate(query_key_32, cos, sin).split_with_sizes([heads, kv_heads], dim=1)
        yield "the rotation of queries", query, query_32
        yield "the rotation of keys", key, key_32
        mixed = _write_and_attend(device, query, key, value, cache, uploaded, spec)
        yield f"attention ({name})", mixed, _attend(batch, histories, query_32, key_32, value_32, spec)


def _write_and_attend(
    device: Device,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cache: Any,
    batch: DeviceBatch,
    spec: AttentionSpec,
) -> Tensor:
    device.write_kv(key, value, cache, batch)
    return device.attention(query, key, value, cache, batch, spec)


def _block_tables(steps: list[tuple[int, ...]], block_size: int) -> list[list[int]]:
    """Of each sequence: neither in order nor side by side."""
    sizes = [-(-sum(news) // block_size) for news in zip(*steps, strict=True)]
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


def _attend(
    batch: StepBatch, histories: list[_History], query: Tensor, key: Tensor, value: Tensor, spec: AttentionSpec
) -> Tensor:
    """Each sequence by itself, over all its keys and values; [T, H * D]."""
    parts = []
    start = 0
    for end, history in zip(batch.query_ends, histories, strict=True):
        history.keys.append(key[start:end])
        history.values.append(value[start:end])
        keys, values = torch.cat(history.keys), torch.cat(history.values)
        parts.append(_causal(query[start:end], keys, values, spec))
        start = end
    return torch.cat(parts)


def _causal(query: Tensor, keys: Tensor, values: Tensor, spec: AttentionSpec) -> Tensor:
    num_new, heads, _ = query.shape
    group = heads // keys.shape[1]
    keys, values = keys.repeat_interleave(group, dim=1), values.repeat_interleave(group, dim=1)
    scores = torch.einsum("qhd,khd->hqk", query, keys) * spec.scale
    if spec.softcap is not None:
        scores = spec.softcap * (scores / spec.softcap).tanh()
    back = torch.arange(len(keys) - num_new, len(keys))[:, None] - torch.arange(len(keys))
    hidden = (back < 0) | (back >= (spec.window or len(keys)))
    sinks = scores.new_full((heads, 1, 1), -math.inf) if spec.sinks is None else spec.sinks.float().cpu().view(-1, 1, 1)
    scores = torch.cat([scores.masked_fill(hidden, -math.inf), sinks.expand(heads, num_new, 1)], dim=-1)
    return torch.einsum("hqk,khd->qhd", scores.softmax(dim=-1)[..., :-1], values).reshape(num_new, -1)
