"""Operators of torch that the engine runs on the npu, and that torch_npu 2.13.0 has kernels for.

Facts of the published wheel, held against it by ``make test-npu-schemas``. Operators that torch makes of others are not
among them."""

from __future__ import annotations

from typing import Final

KERNELS: Final = frozenset(
    {
        "arange",
        "where",
    }
)
