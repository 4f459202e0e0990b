"""What the operators of torch_npu compute, and what they refuse, by their documents. On CPU tensors."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tests.npu_emulation.tensors import NpuError

SIXTEEN_BITS = (torch.float16, torch.bfloat16)
attention_dtypes: set[torch.dtype] = set(SIXTEEN_BITS)
"""A test that compares to the last token adds float32."""

counts_blocks = False
"""Whether a cache must have as many blocks as the lengths of a call add up to. So the documents; but sequences that
share the blocks of a prefix, and rows of padding, can break it in service, and nobody says whether the hardware minds.
It holds while a model is started, where nothing has to break it."""

_MASK = (2048, 2048)
_UNBOUNDED = 2147483647
_known_masks: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()
"""Found right before: they have four million numbers."""


def require(fulfilled: bool, rule: str) -> None:
    if not fulfilled:
        raise NpuError(rule)


def rms_norm(x: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    require(x.dtype == gamma.dtype, "rms_norm: x and gamma differ in type")
    require(gamma.shape == x.shape[x.dim() - gamma.dim() :], "rms_norm: gamma has the last dimensions of x")
    wide = x.float()
    rstd = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)
    return (wide * rstd * gamma.float()).to(x.dtype), rstd


def add_rms_norm(x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor, Tensor]:
    require(x1.shape == x2.shape, "add_rms_norm: x1 and x2 differ in shape")
    require(x1.dtype == x2.dtype, "add_rms_norm: x1 and x2 differ in type")
    total = x1 + x2
    normed, rstd = rms_norm(total, gamma, epsilon)
    return normed, rstd, total


def swiglu(x: Tensor, dim: int = -1) -> Tensor:
    gate, up = x.float().chunk(2, dim)
    return (functional.silu(gate) * up).to(x.dtype)


def rotary_mul(x: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str = "half", rotate: Tensor | None = None) -> Tensor:
    require(rotary_mode == "half" and rotate is None, "rotary_mul: mode half only")
    require(x.dim() == r1.dim() == r2.dim() == 4, "rotary_mul: four dimensions")
    require(x.shape[0] < 1000 and x.shape[2] < 1000 and x.shape[3] % 2 == 0 and x.shape[3] < 896, "rotary_mul: sizes")
    require(r1.shape == r2.shape == (*x.shape[:2], 1, x.shape[3]), "rotary_mul: cosines and sines (1, T, 1, D)")
    return _rotated(x, r1, r2)


def apply_rotary_pos_emb(
    query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, layout: str = "BSND", rotary_mode: str = "half"
) -> tuple[Tensor, Tensor]:
    tensors = (query, key, cos, sin)
    require(layout == "TND" and rotary_mode == "half", "apply_rotary_pos_emb: TND and half only")
    require(all(tensor.dim() == 3 and tensor.numel() for tensor in tensors), "apply_rotary_pos_emb: three dimensions")
    require(query.shape[-1] in (64, 128), "apply_rotary_pos_emb: D is 64 or 128")
    require(cos.shape == sin.shape == (len(query), 1, query.shape[-1]), "apply_rotary_pos_emb: cos and sin (T, 1, D)")
    require(len({tensor.dtype for tensor in tensors}) == 1, "apply_rotary_pos_emb: one type for all")
    require(all(tensor.is_contiguous() for tensor in tensors), "apply_rotary_pos_emb: contiguous")
    rotated = _rotated(query, cos, sin), _rotated(key, cos, sin)
    # It works in place, and what it leaves in the inputs is its own affair.
    query.fill_(torch.nan)
    key.fill_(torch.nan)
    return rotated


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.float().chunk(2, -1)
    return (x.float() * cos.float() + torch.cat((-second, first), -1) * sin.float()).to(x.dtype)


def scatter_pa_kv_cache(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    *,
    cache_mode: str | None = "PA_NZ",
    **others: Any,
) -> None:
    require(cache_mode == "Norm" and not any(others.values()), "scatter_pa_kv_cache: cache_mode Norm only")
    require(key.dim() == 3 and key_cache.dim() == 4, "scatter_pa_kv_cache: (T, KN, D) into (blocks, size, KN, D)")
    tensors = (key, value, key_cache, value_cache)
    require(all(one.is_contiguous() for one in (*tensors, slot_mapping)), "scatter_pa_kv_cache: contiguous")
    require(len({one.dtype for one in tensors}) == 1, "scatter_pa_kv_cache: one type for all")
    require(slot_mapping.dtype in (torch.int32, torch.int64), "scatter_pa_kv_cache: slots are int32 or int64")
    require(len(slot_mapping) == len(key) == len(value), "scatter_pa_kv_cache: a slot for each token")
    require(len(slot_mapping.unique()) == len(slot_mapping), "scatter_pa_kv_cache: slots are unique")
    num_slots = key_cache.shape[0] * key_cache.shape[1]
    in_range = int(slot_mapping.min()) >= 0 and int(slot_mapping.max()) < num_slots
    require(in_range, "scatter_pa_kv_cache: slots lie in the cache")
    slots = slot_mapping.long()
    key_cache.view(num_slots, *key.shape[1:])[slots] = key
    value_cache.view(num_slots, *value.shape[1:])[slots] = value


def fused_infer_attention_score(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    atten_mask: Tensor | None = None,
    actual_seq_lengths: list[int] | None = None,
    actual_seq_lengths_kv: list[int] | None = None,
    block_table: Tensor | None = None,
    num_heads: int = 1,
    scale: float = 1.0,
    pre_tokens: int = _UNBOUNDED,
    next_tokens: int = _UNBOUNDED,
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    sparse_mode: int = 0,
    block_size: int = 0,
    **others: Any,
) -> tuple[Tensor, Tensor]:
    require(not any(others.values()), f"attention: not modelled: {sorted(others)}")
    require(input_layout == "TND" and block_table is not None, "attention: TND over blocks only")
    assert block_table is not None
    ends, lengths = list(actual_seq_lengths or ()), list(actual_seq_lengths_kv or ())
    _check_tensors(query, key, value, num_heads, num_key_value_heads, block_size)
    _check_mask(atten_mask, sparse_mode, pre_tokens, next_tokens)
    require(bool(ends) and ends == sorted(ends) and ends[-1] == len(query), "attention: query ends add up to T")
    require(len(lengths) == len(ends) <= 4096, "attention: a length for each sequence")
    require(
        block_table.dtype == torch.int32 and block_table.dim() == 2 and len(block_table) == len(ends),
        "attention: a line of the block table, int32, for each sequence",
    )
    num_read = sum(-(-length // block_size) for length in lengths)
    require(
        not counts_blocks or num_read <= len(key), "attention: the cache has fewer blocks than the lengths add up to"
    )
    out = torch.empty_like(query)
    start = 0
    for line, end, length in zip(block_table, ends, lengths, strict=True):
        blocks = line[: -(-length // block_size)].long()
        require(len(blocks) * block_size >= length, "attention: the block table is too narrow")
        require(int(blocks.min()) >= 0 and int(blocks.max()) < len(key), "attention: blocks lie in the cache")
        require(length >= end - start, "attention: no more queries than keys")
        heads = num_key_value_heads, query.shape[-1]
        keys = key[blocks].reshape(-1, *heads)[:length]
        values = value[blocks].reshape(-1, *heads)[:length]
        window = pre_tokens if sparse_mode == 4 else length
        out[start:end] = _attend(query[start:end], keys, values, scale, window)
        start = end
    return out, torch.zeros(1)


def _check_tensors(query: Tensor, key: Tensor, value: Tensor, heads: int, kv_heads: int, block_size: int) -> None:
    head_dim = query.shape[-1]
    require(query.dim() == 3 and query.shape[1] == heads, "attention: queries (T, N, D)")
    require(heads % kv_heads == 0 and heads // kv_heads <= 64 and heads <= 256, "attention: heads")
    require(head_dim in (64, 128, 192), "attention: D is 64, 128 or 192")
    require(query.dtype in attention_dtypes and key.dtype == value.dtype == query.dtype, "attention: 16 bits, one type")
    require(all(one.is_contiguous() for one in (query, key, value)), "attention: contiguous")
    require(block_size == 128, "attention: blocks of 128")
    require(
        key.shape == value.shape and key.shape[1:] == (block_size, kv_heads * head_dim),
        "attention: keys and values (blocks, block size, KN * D)",
    )
    require(kv_heads * head_dim <= 65535, "attention: KN * D")


def _check_mask(mask: Tensor | None, sparse_mode: int, pre_tokens: int, next_tokens: int) -> None:
    require(sparse_mode in (3, 4), "attention: sparse_mode 3 or 4")
    require(mask is not None and mask.shape == _MASK, "attention: the mask is 2048 x 2048")
    assert mask is not None
    require(mask.dtype in (torch.int8, torch.uint8, torch.bool), "attention: the mask's type")
    if _known_masks.get(id(mask)) is not mask:
        causal = torch.ones(_MASK, dtype=torch.bool).triu(1)
        require(torch.equal(mask.bool(), causal), "attention: the mask is 1 above the diagonal")
        _known_masks[id(mask)] = mask
    if sparse_mode == 4:
        require(0 <= pre_tokens < _UNBOUNDED and next_tokens == 0, "attention: a band has bounds")


def _attend(query: Tensor, keys: Tensor, values: Tensor, scale: float, window: int) -> Tensor:
    """The last query sees the last key; none sees further back than ``window`` before its own."""
    num_queries, num_keys, group = len(query), len(keys), query.shape[1] // keys.shape[1]
    wide_keys, wide_values = (one.float().repeat_interleave(group, 1) for one in (keys, values))
    scores = torch.einsum("qhd,khd->hqk", query.float(), wide_keys) * scale
    own = torch.arange(num_queries)[:, None] + num_keys - num_queries
    position = torch.arange(num_keys)
    hidden = (position > own) | (position < own - window)
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, wide_values).to(query.dtype)


REFERENCES = {
    "npu_rms_norm": rms_norm,
    "npu_add_rms_norm": add_rms_norm,
    "npu_rotary_mul": rotary_mul,
    "npu_apply_rotary_pos_emb": apply_rotary_pos_emb,
    "npu_swiglu": swiglu,
    "npu_scatter_pa_kv_cache": scatter_pa_kv_cache,
    "npu_fused_infer_attention_score": fused_infer_attention_score,
}
