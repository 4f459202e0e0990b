"""Attention over the paged cache of an NPU: one fused operator for decode rows, prompts and chunks alike."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from mindserve_engine.interface import EngineError
from mindserve_engine.native.device.base import AttentionShape, AttentionSpec
from mindserve_engine.native.device.npu_operators import NpuOperators
from mindserve_engine.native.device.paged_batch import PagedPlan

BLOCK_SIZE: Final = 128
"""The only one that all documents and all users of the operator agree on."""
MAX_SEQUENCES: Final = 4096
"""In one call."""

_HEAD_DIMS: Final = (64, 128, 192)
_MAX_GROUP: Final = 64
_MAX_HEADS: Final = 256
_MAX_WIDTH: Final = 65535
_MASK_SIZE: Final = 2048
"""Whatever the lengths are: the operator moves this triangle over the scores."""
_CAUSAL: Final = 3
"""``sparse_mode``: the last query of a sequence sees its last key."""
_BAND: Final = 4
"""``sparse_mode``: the same, and no query sees more than ``pre_tokens`` keys before its own."""


def check_shape(shape: AttentionShape) -> None:
    """Raise ``EngineError`` that names what the operator does not do."""
    heads, kv_heads, head_dim = shape.heads, shape.kv_heads, shape.head_dim
    if head_dim not in _HEAD_DIMS:
        known = ", ".join(map(str, _HEAD_DIMS))
        raise EngineError(f"device: npu: attention heads of {head_dim} are not supported, only of {known}")
    if heads % kv_heads or heads // kv_heads > _MAX_GROUP:
        raise EngineError(f"device: npu: {heads} query heads over {kv_heads} key heads are not supported")
    if heads > _MAX_HEADS:
        raise EngineError(f"device: npu: {heads} query heads are more than {_MAX_HEADS}")
    if kv_heads * head_dim > _MAX_WIDTH:
        raise EngineError(f"device: npu: {kv_heads} key heads of {head_dim} are wider than {_MAX_WIDTH}")


class NpuAttention:
    """Attention and cache writes of one device."""

    def __init__(self, operators: NpuOperators, device: torch.device) -> None:
        self._operators = operators
        ones = torch.ones(_MASK_SIZE, _MASK_SIZE, dtype=torch.int8)
        self._mask = ones.triu(1).to(device)
        """[2048, 2048] int8: 1 is hidden."""

    def write(self, key: Tensor, value: Tensor, cache: tuple[Tensor, Tensor], plan: PagedPlan) -> None:
        """[T, KV, D] each into the slots of the plan."""
        self._operators.npu_scatter_pa_kv_cache(
            key.contiguous(),
            value.contiguous(),
            *cache,
            plan.slots,
            cache_mode="Norm",  # the default is a layout of other hardware
        )

    def attend(self, query: Tensor, cache: tuple[Tensor, Tensor], plan: PagedPlan, spec: AttentionSpec) -> Tensor:
        """[T, H, D] -> [T, H * D], over what the cache holds."""
        if spec.softcap is not None or spec.sinks is not None:
            raise EngineError("device: npu: attention with a soft cap or sinks is not supported")
        key, value = cache
        num_blocks, block_size, kv_heads, _ = key.shape
        banded = {} if spec.window is None else {"pre_tokens": spec.window - 1, "next_tokens": 0}
        result = self._operators.npu_fused_infer_attention_score(
            query.contiguous(),
            key.view(num_blocks, block_size, -1),
            value.view(num_blocks, block_size, -1),
            atten_mask=self._mask,
            block_table=plan.block_table,
            block_size=block_size,
            input_layout="TND",
            actual_seq_lengths=plan.host_query_ends,  # cumulative
            actual_seq_lengths_kv=plan.host_kv_lengths,  # of a paged cache not cumulative; graphs replace it by name
            num_heads=query.shape[1],
            num_key_value_heads=kv_heads,
            scale=spec.scale,
            sparse_mode=_CAUSAL if spec.window is None else _BAND,
            **banded,
        )
        mixed: Tensor = result[0]
        return mixed.view(query.shape[0], -1)
