"""Attention over the paged cache on CPU.

Decode rows are computed as batched products over tiles gathered from the cache: torch's scaled_dot_product_attention is
ten times slower with bfloat16 keys and one query row. Few sequences go through it all the same, with the query heads
that share a key head as its rows. Prompt parts go through it one by one.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from mindserve_engine.native.device.base import AttentionSpec
from mindserve_engine.native.device.cpu_plan import Cells, CpuPlan, DecodeGroup, PromptPart

_FEW_HEADS: Final = 16
"""Sequences times KV heads up to which one fused call beats separate batched products."""


def attend(query: Tensor, key: Tensor, value: Tensor, cache: Tensor, plan: CpuPlan, spec: AttentionSpec) -> Tensor:
    """[T, H, D] queries, [T, KV, D] new keys and values (already in ``cache``) -> [T, H, D]."""
    if len(plan.decode) == 1 and not plan.prompts:
        return _decode(query, _gather(cache, plan, 0, plan.decode[0].cells, query.dtype), plan.decode[0], spec)
    out = torch.empty_like(query)
    for which, group in enumerate(plan.decode):
        gathered = _gather(cache, plan, which, group.cells, query.dtype)
        out[group.rows] = _decode(query[group.rows], gathered, group, spec)
    attend_prompts(query, key, value, cache, plan, spec, out)
    return out


def attend_prompts(
    query: Tensor, key: Tensor, value: Tensor, cache: Tensor, plan: CpuPlan, spec: AttentionSpec, out: Tensor
) -> None:
    """``attend`` for the plan's prompt parts; their rows of ``out`` are written."""
    for which, part in enumerate(plan.prompts, start=len(plan.decode)):
        rows = slice(part.start, part.stop)
        if part.cells is None:
            keys, values = key[rows].transpose(0, 1)[None], value[rows].transpose(0, 1)[None]
        else:
            keys, values = _gather(cache, plan, which, part.cells, query.dtype)[..., : int(part.cells.lengths[0]), :]
        out[rows] = _prompt(query[rows], keys, values, part, spec)


def _gather(cache: Tensor, plan: CpuPlan, which: int, cells: Cells, dtype: torch.dtype) -> Tensor:
    """[2, B, KV, tokens, D] of ``dtype`` copied from [2, blocks, KV, block size, D]."""
    _, num_blocks, kv_heads, _, head_dim = cache.shape
    index = plan.read_index(which, cells, num_blocks, kv_heads)
    tiles = cache.view(-1, plan.tile * head_dim).index_select(0, index)
    return tiles.view(2, len(cells.lengths), kv_heads, cells.num_tokens, head_dim).to(dtype)


def _decode(query: Tensor, gathered: Tensor, group: DecodeGroup, spec: AttentionSpec) -> Tensor:
    """One query token for each sequence: [B, H, D] -> [B, H, D]."""
    _, batch, kv_heads, num_tokens, head_dim = gathered.shape
    keys, values = gathered
    heads = query.reshape(batch, kv_heads, -1, head_dim)
    mask = _decode_mask(group, spec.window, query.dtype)
    if spec.softcap is not None or spec.sinks is not None:
        return _plain(heads, keys, values, mask, spec).reshape(query.shape)
    if batch * kv_heads <= _FEW_HEADS:
        return functional.scaled_dot_product_attention(heads, keys, values, mask, scale=spec.scale).reshape(query.shape)
    scores = torch.bmm(heads.flatten(0, 1), keys.flatten(0, 1).transpose(1, 2))
    scores = scores.view(batch, kv_heads, -1, num_tokens).to(torch.float32).mul_(spec.scale).add_(mask)
    weights = scores.softmax(dim=-1).to(values.dtype).flatten(0, 1)
    return torch.bmm(weights, values.flatten(0, 1)).reshape(query.shape)


def _decode_mask(group: DecodeGroup, window: int | None, dtype: torch.dtype) -> Tensor:
    """[B, 1, 1, tokens] added to the scores."""
    key = (window, dtype)
    if key not in group.masks:
        lengths = torch.from_numpy(group.cells.lengths)[:, None]
        position = torch.arange(group.cells.num_tokens)
        seen = position < lengths
        if window is not None:
            seen &= position >= lengths - window
        group.masks[key] = _additive(seen, dtype)[:, None, None]
    return group.masks[key]


def _prompt(query: Tensor, keys: Tensor, values: Tensor, part: PromptPart, spec: AttentionSpec) -> Tensor:
    """Several query tokens of one sequence: [n, H, D] with keys [1, KV, L, D] -> [n, H, D]."""
    heads = query.transpose(0, 1)[None]
    if spec.softcap is not None or spec.sinks is not None:
        return _plain_prompt(heads, keys, values, part, spec)
    whole = part.cells is None and spec.window is None
    mask = None if whole else _prompt_mask(part, spec.window, query.dtype)
    out = functional.scaled_dot_product_attention(
        heads, keys, values, mask, is_causal=whole, scale=spec.scale, enable_gqa=heads.shape[1] != keys.shape[1]
    )
    return out[0].transpose(0, 1)


def _prompt_mask(part: PromptPart, window: int | None, dtype: torch.dtype) -> Tensor:
    """[n, L] added to the scores: causal, the last query seeing the last key."""
    key = (window, dtype)
    if key not in part.masks:
        length = part.num_new if part.cells is None else int(part.cells.lengths[0])
        query_position = torch.arange(length - part.num_new, length)[:, None]
        position = torch.arange(length)
        seen = position <= query_position
        if window is not None:
            seen &= position > query_position - window
        part.masks[key] = _additive(seen, dtype)
    return part.masks[key]


def _plain_prompt(heads: Tensor, keys: Tensor, values: Tensor, part: PromptPart, spec: AttentionSpec) -> Tensor:
    """[1, H, n, D] -> [n, H, D] with one score matrix per KV head and query head."""
    groups = heads.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(groups, dim=1), values.repeat_interleave(groups, dim=1)
    mask = _prompt_mask(part, spec.window, heads.dtype)
    return _plain(heads, keys, values, mask, spec)[0].transpose(0, 1)


def _plain(heads: Tensor, keys: Tensor, values: Tensor, mask: Tensor, spec: AttentionSpec) -> Tensor:
    """Attention written out, for models that bend the scores: [B, K, q, D] x [B, K, L, D] -> [B, K, q, D]."""
    scores = (heads @ keys.transpose(-1, -2)).to(torch.float32) * spec.scale
    if spec.softcap is not None:
        scores = torch.tanh(scores / spec.softcap) * spec.softcap
    scores = scores + mask
    if spec.sinks is None:
        return scores.softmax(dim=-1).to(values.dtype) @ values
    sinks = spec.sinks.to(torch.float32).view(1, heads.shape[1], -1, 1)
    with_sink = torch.cat([scores, sinks.expand(*scores.shape[:-1], 1)], dim=-1)
    return with_sink.softmax(dim=-1)[..., :-1].to(values.dtype) @ values


def _additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, float("-inf"))
