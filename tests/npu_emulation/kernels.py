"""Operators of torch that the engine runs on the npu, and that torch_npu 2.13.0 has kernels for.

Facts of the published wheel, held against it by ``make test-npu-schemas``. Operators that torch makes of others are not
among them."""

from __future__ import annotations

from typing import Final

KERNELS: Final = frozenset(
    (
        "_log_softmax",
        "add",
        "addcmul",
        "addmm",
        "arange",
        "argmax",
        "cat",
        "clamp",
        "clamp_max",
        "clamp_min",
        "cumsum",
        "div",
        "eq",
        "exp",
        "fill",
        "gather",
        "gt",
        "index",
        "index_add",
        "index_copy",
        "index_select",
        "lt",
        "masked_fill",
        "max",
        "minimum",
        "mm",
        "mul",
        "ne",
        "scatter",
        "searchsorted",
        "sub",
        "sum",
        "topk",
        "view",
        "where",
        "zero",
    )
)
