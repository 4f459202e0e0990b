"""Attention over a paged cache on GPUs: by flash-attn where it is installed, else by torch's own over gathered blocks.

torch has an operator that reads block tables too (``torch.nn.attention.varlen``), but only with a separate package for
the newest GPUs; what torch itself brings refuses them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from mindserve_engine.native.device.base import AttentionSpec
from mindserve_engine.native.device.paged_batch import PagedPlan
from mindserve_engine.native.device.paged_tensors import LayerPair, zero_pairs

FLASH_BLOCK_SIZE: Final = 256
"""flash-attn reads pages of a multiple of it."""
_FLASH_DTYPES: Final = frozenset({torch.bfloat16, torch.float16})
_FLASH_MAX_HEAD_DIM: Final = 256
_TRIED_HEAD_DIM: Final = 64
_GATHERED_ELEMENTS: Final = 1 << 27
"""Of keys that are copied out of their blocks at a time, and of scores."""


class FlashAttn(Protocol):
    """What is used of the package ``flash_attn``; ``tests`` hold it against the published signatures."""

    def flash_attn_with_kvcache(self, q: Tensor, k_cache: Tensor, v_cache: Tensor, **options: Any) -> Tensor: ...

    def flash_attn_varlen_func(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cu_seqlens_q: Tensor,
        cu_seqlens_k: Tensor,
        max_seqlen_q: int,
        max_seqlen_k: int,
        **options: Any,
    ) -> Tensor: ...


class FlashAttention:
    """Decode steps read all that changes from the device, so that they can be captured."""

    def __init__(self, package: FlashAttn, *, dtypes: frozenset[torch.dtype] = _FLASH_DTYPES) -> None:
        self._package = package
        self._dtypes = dtypes
        self._gathered = GatheredAttention()

    def fits(self, head_dim: int, dtype: torch.dtype) -> bool:
        """Whether it computes attention of such heads."""
        return dtype in self._dtypes and head_dim <= _FLASH_MAX_HEAD_DIM and head_dim % 8 == 0

    def attend(self, query: Tensor, cache: LayerPair, plan: PagedPlan, spec: AttentionSpec) -> Tensor:
        """[T, H, D] -> [T, H, D], causal over what the cache holds of each sequence."""
        if spec.sinks is not None:
            return self._gathered.attend(query, cache, plan, spec)
        options: dict[str, Any] = {
            "softmax_scale": spec.scale,
            "causal": True,  # a sequence's last query sees its last key
            "window_size": (-1, -1) if spec.window is None else (spec.window - 1, 0),
            "softcap": spec.softcap or 0.0,
            "block_table": plan.block_table,
        }
        if len(query) == len(plan.host_kv_lengths):
            one_each = query[:, None]
            mixed = self._package.flash_attn_with_kvcache(one_each, *cache, cache_seqlens=plan.kv_lengths, **options)
            return mixed[:, 0]
        key_starts = functional.pad(plan.kv_lengths.cumsum(0, dtype=torch.int32), (1, 0))
        ends = plan.host_query_ends
        longest = max(end - start for start, end in zip([0, *ends], ends, strict=False))
        return self._package.flash_attn_varlen_func(
            query, *cache, plan.query_starts, key_starts, longest, max(plan.host_kv_lengths), **options
        )


def try_out(flash: FlashAttention, device: torch.device, dtype: torch.dtype) -> None:
    """Run a prompt of two tokens and a decode row. Raises whatever the package raises where it has no kernels."""
    [cache] = zero_pairs((1, FLASH_BLOCK_SIZE, 1, _TRIED_HEAD_DIM), 1, dtype, device)
    for num_new in (2, 1):
        plan = PagedPlan(
            slots=torch.zeros(num_new, dtype=torch.int32, device=device),
            block_table=torch.zeros(1, 1, dtype=torch.int32, device=device),
            query_starts=torch.tensor([0, num_new], dtype=torch.int32, device=device),
            kv_lengths=torch.tensor([2], dtype=torch.int32, device=device),
            host_query_ends=[num_new],
            host_kv_lengths=[2],
        )
        query = torch.zeros(num_new, 1, _TRIED_HEAD_DIM, dtype=dtype, device=device)
        flash.attend(query, cache, plan, AttentionSpec(scale=1.0)).cpu()  # what fails on the device fails here


class GatheredAttention:
    """For any type, head and block: keys and values are copied out of their blocks."""

    def attend(self, query: Tensor, cache: LayerPair, plan: PagedPlan, spec: AttentionSpec) -> Tensor:
        """As ``FlashAttention.attend``."""
        is_decode = len(query) == len(plan.host_kv_lengths)
        parts = _decode_groups(query, cache, plan, spec) if is_decode else _sequences(query, cache, plan, spec)
        return torch.cat(list(parts))


def _decode_groups(query: Tensor, cache: LayerPair, plan: PagedPlan, spec: AttentionSpec) -> Iterator[Tensor]:
    """Rows side by side, as many as may be gathered at a time."""
    block_size, kv_heads, head_dim = cache[0].shape[1:]
    width = -(-max(plan.host_kv_lengths) // block_size)
    size = max(1, _GATHERED_ELEMENTS // (width * block_size * kv_heads * head_dim))
    for start in range(0, len(query), size):
        rows = slice(start, start + size)
        table = plan.block_table[rows, :width]
        key, value = (half[table].flatten(1, 2).transpose(1, 2) for half in cache)
        positions = torch.arange(key.shape[2], device=key.device)
        last = plan.kv_lengths[rows, None] - 1
        yield _attend(query[rows, :, None], key, value, _seen(positions, last, spec)[:, None, None], spec)[:, :, 0]


def _sequences(query: Tensor, cache: LayerPair, plan: PagedPlan, spec: AttentionSpec) -> Iterator[Tensor]:
    block_size = cache[0].shape[1]
    start = 0
    for number, (end, length) in enumerate(zip(plan.host_query_ends, plan.host_kv_lengths, strict=True)):
        table = plan.block_table[number, : -(-length // block_size)]
        key, value = (half[table].flatten(0, 1)[:length].transpose(0, 1)[None] for half in cache)
        positions = torch.arange(length, device=key.device)
        size = max(1, _GATHERED_ELEMENTS // (length * query.shape[1]))
        for first in range(start, end, size):
            rows = query[first : min(first + size, end)]
            own = torch.arange(length - (end - first), length - (end - first) + len(rows), device=key.device)[:, None]
            mixed = _attend(rows.transpose(0, 1)[None], key, value, _seen(positions, own, spec), spec)
            yield mixed[0].transpose(0, 1)
        start = end


def _seen(keys: Tensor, queries: Tensor, spec: AttentionSpec) -> Tensor:
    """Positions [L] and [..., 1] -> [..., L] bool: which keys each query sees."""
    seen = keys <= queries
    return seen if spec.window is None else seen & (keys > queries - spec.window)


def _attend(query: Tensor, key: Tensor, value: Tensor, seen: Tensor, spec: AttentionSpec) -> Tensor:
    """[B, H, Q, D] over [B, KV, L, D] -> [B, H, Q, D]."""
    # What is not seen may be anything that an earlier sequence left in a block, or that another has in one: masks are
    # added to scores and shares of 0 multiplied by values, which leaves NaN what it is.
    unseen = ~seen.any(dim=-2)[..., None]
    key, value = key.masked_fill(unseen, 0), value.masked_fill(unseen, 0)
    if spec.softcap is None and spec.sinks is None:
        is_grouped = query.shape[1] != key.shape[1]
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=seen, scale=spec.scale, enable_gqa=is_grouped
        )
    group = query.shape[1] // key.shape[1]
    key, value = (half.repeat_interleave(group, dim=1) for half in (key, value))
    scores = (query.float() @ key.float().mT) * spec.scale
    if spec.softcap is not None:
        scores = spec.softcap * torch.tanh(scores / spec.softcap)
    scores = scores.masked_fill(~seen, float("-inf"))
    if spec.sinks is not None:
        sinks = spec.sinks.float().view(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
        scores = torch.cat([scores, sinks], dim=-1)
    shares = scores.softmax(dim=-1)[..., : key.shape[2]]
    return (shares @ value.float()).to(query.dtype)
