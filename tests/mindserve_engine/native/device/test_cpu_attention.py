"""Writing to the paged cache and attending over it, against attention written out sequence by sequence."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mindserve_engine.native.batch import StepBatch
from mindserve_engine.native.device.base import AttentionSpec
from mindserve_engine.native.device.cpu_plan import plan_step
from tests.mindserve_engine.native.device.devices import DEVICES, make_device

HEAD_DIM = 16
EACH_DEVICE = pytest.mark.parametrize("kind", DEVICES)


@dataclass
class Case:
    """Sequences with so many tokens before this step and so many in it."""

    history: list[int]
    new: list[int]
    block_size: int = 16
    heads: int = 4
    kv_heads: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        lengths = [past + now for past, now in zip(self.history, self.new, strict=True)]
        self.keys = [torch.randn(n, self.kv_heads, HEAD_DIM, generator=generator) for n in lengths]
        self.values = [torch.randn(n, self.kv_heads, HEAD_DIM, generator=generator) for n in lengths]
        self.queries = [torch.randn(n, self.heads, HEAD_DIM, generator=generator) for n in self.new]
        counts = [-(-n // self.block_size) for n in lengths]
        order = [1 + number for number in torch.randperm(sum(counts), generator=generator).tolist()]
        self.tables = [[order.pop() for _ in range(count)] for count in counts]
        self.num_blocks = 1 + sum(counts)  # block 0 is nobody's

    def batch(self, starts: list[int], stops: list[int]) -> StepBatch:
        batch = StepBatch()
        for table, start, stop in zip(self.tables, starts, stops, strict=True):
            if start == stop:
                continue
            batch.token_ids += [0] * (stop - start)
            batch.positions += range(start, stop)
            size = self.block_size
            batch.slots += [table[p // size] * size + p % size for p in range(start, stop)]
            batch.query_ends.append(len(batch.token_ids))
            batch.kv_lengths.append(stop)
            batch.block_tables.append(table)
        return batch

    def run(
        self,
        kind: str,
        spec: AttentionSpec,
        *,
        poison: float | None = None,
        dtype: torch.dtype = torch.float32,
        cache_dtype: torch.dtype | None = None,
    ) -> Tensor:
        device = make_device(kind, block_size=self.block_size)
        (cache,) = device.kv_cache(
            num_layers=1,
            num_blocks=self.num_blocks,
            block_size=self.block_size,
            kv_heads=self.kv_heads,
            head_dim=HEAD_DIM,
            dtype=cache_dtype or dtype,
        )
        if poison is not None:
            cache.fill_(poison)
        ends = [past + now for past, now in zip(self.history, self.new, strict=True)]
        for starts, stops in (([0] * len(ends), self.history), (self.history, ends)):
            step = self.batch(starts, stops)
            if not step.token_ids:
                continue
            spans = list(zip(starts, stops, strict=True))
            key = torch.cat([k[a:b] for k, (a, b) in zip(self.keys, spans, strict=True)]).to(dtype)
            value = torch.cat([v[a:b] for v, (a, b) in zip(self.values, spans, strict=True)]).to(dtype)
            uploaded = device.upload(step)
            device.write_kv(key, value, cache, uploaded)
        return device.attention(torch.cat(self.queries).to(dtype), key, value, cache, uploaded, spec)

    def expected(self, spec: AttentionSpec) -> Tensor:
        rows = zip(self.queries, self.keys, self.values, self.history, strict=True)
        return torch.cat([written_out(q, k, v, past, spec) for q, k, v, past in rows])


def written_out(query: Tensor, key: Tensor, value: Tensor, past: int, spec: AttentionSpec) -> Tensor:
    """[n, H, D] by the definition, one query token and head at a time."""
    out = torch.zeros_like(query)
    group = query.shape[1] // key.shape[1]
    for token in range(query.shape[0]):
        position = past + token
        first = 0 if spec.window is None else max(0, position - spec.window + 1)
        for head in range(query.shape[1]):
            keys, values = key[first : position + 1, head // group], value[first : position + 1, head // group]
            scores = keys @ query[token, head] * spec.scale
            if spec.softcap is not None:
                scores = torch.tanh(scores / spec.softcap) * spec.softcap
            if spec.sinks is not None:
                scores = torch.cat([scores, spec.sinks[head : head + 1]])
            out[token, head] = scores.softmax(0)[: len(values)] @ values
    return out.reshape(query.shape[0], -1)


PLAIN = AttentionSpec(scale=0.3)
SPECS = {
    "plain": PLAIN,
    "window": AttentionSpec(scale=0.3, window=9),
    "softcap": AttentionSpec(scale=0.3, softcap=0.7),
    "sinks": AttentionSpec(scale=0.3, sinks=torch.tensor([0.5, -1.0, 2.0, 0.0])),
    "all": AttentionSpec(scale=0.3, window=20, softcap=2.0, sinks=torch.tensor([0.5, -1.0, 2.0, 0.0])),
}
CASES = {
    "one decode": Case([33], [1]),
    "first token": Case([0], [1]),
    "decode of like length": Case([30, 31, 32, 40, 47, 48, 49, 50, 33], [1] * 9),
    "decode of many lengths": Case([1, 200, 15, 16, 90, 3, 64, 300, 0], [1] * 9),
    "decode of long contexts": Case([255, 256, 511, 700], [1] * 4),
    "prompt": Case([0], [50]),
    "chunk": Case([37], [21]),
    "mixed": Case([0, 40, 7, 100, 64, 31], [20, 1, 5, 1, 64, 1]),
    "block of 128": Case([0, 130, 127, 128], [200, 1, 1, 4], block_size=128),
    "block of 48": Case([50, 10], [1, 60], block_size=48),
    "one query head per key head": Case([20, 5], [1, 6], heads=3, kv_heads=3),
}


@EACH_DEVICE
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("case", CASES)
def test_equals_attention_written_out(kind: str, case: str, spec: str) -> None:
    chosen = SPECS[spec]
    if chosen.sinks is not None and CASES[case].heads != 4:
        chosen = AttentionSpec(scale=chosen.scale, sinks=torch.randn(CASES[case].heads))
    torch.testing.assert_close(CASES[case].run(kind, chosen), CASES[case].expected(chosen), rtol=1e-4, atol=1e-5)


@EACH_DEVICE
@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 140), st.sampled_from([1, 1, 1, 2, 17, 40])), min_size=1, max_size=12),
    st.sampled_from([16, 32, 64, 128]),
    st.integers(0, 99),
)
def test_any_mixture(kind: str, sequences: list[tuple[int, int]], block_size: int, seed: int) -> None:
    case = Case([past for past, _ in sequences], [now for _, now in sequences], block_size, seed=seed)
    torch.testing.assert_close(case.run(kind, PLAIN), case.expected(PLAIN), rtol=1e-4, atol=1e-5)


@EACH_DEVICE
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize("case", CASES)
def test_what_former_owners_left_in_the_blocks_is_never_read(kind: str, case: str, poison: float) -> None:
    actual = CASES[case].run(kind, PLAIN, poison=poison)
    torch.testing.assert_close(actual, CASES[case].expected(PLAIN), rtol=1e-4, atol=1e-5)


@EACH_DEVICE
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", CASES)
def test_narrow_types_are_close(kind: str, case: str, dtype: torch.dtype) -> None:
    actual, expected = CASES[case].run(kind, PLAIN, dtype=dtype).float(), CASES[case].expected(PLAIN)
    assert float((actual - expected).norm() / expected.norm()) < 0.02


def test_decode_groups_bound_the_padding() -> None:
    case = Case([10, 2000, 15, 1500, 12, 400], [1] * 6)
    ends = [past + 1 for past in case.history]
    plan = plan_step(case.batch(case.history, ends), case.block_size)
    rows = sorted(row for group in plan.decode for row in group.rows.tolist())
    assert rows == list(range(6))
    gathered = sum(len(group.rows) * group.cells.num_tokens for group in plan.decode)
    assert gathered < 1.6 * sum(ends) + 64 * len(ends)


@EACH_DEVICE
@pytest.mark.parametrize("cache_dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", CASES)
def test_floats_over_a_narrow_cache(kind: str, case: str, cache_dtype: torch.dtype) -> None:
    """Only the keys and values that are read back are rounded."""
    actual, expected = CASES[case].run(kind, PLAIN, cache_dtype=cache_dtype), CASES[case].expected(PLAIN)
    assert actual.dtype == torch.float32
    assert float((actual - expected).norm() / expected.norm()) < 0.01
