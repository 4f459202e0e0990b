"""Products with weights on CPU: which kernel at which batch size.

Measured on two Zen 4 cores (all linears of one step of a 135M model, ms): at 1 / 8 / 12 / 16 / 32 rows int4 takes
4.5 / 14 / 21 / 27 / 52 and bfloat16 19 / 23 / 35 / 26 / 37. Few rows are bound by reading the weights, many by
arithmetic.

Where the CPU has no arithmetic for bfloat16 (AVX2), its products are five to ten times slower than those of float32. On
two such cores one product of 576 x 1536 at 1 / 16 / 64 / 256 rows takes (ms) int4 0.2 / 0.8 / 3.3 / 22, bfloat16
0.3 / 3.3 / 28 / 93, float32 0.1 / 1.4 / 5 / 10. There the wide copies are float32, and plain bfloat16 weights get them
too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from mindserve_engine.native.weights.quantised import INT4_GROUP, Int4Weight, Int8Weight, LinearWeight


class Crossover(NamedTuple):
    """The type of wide copies, and the number of rows above which one is faster than the weight as it is held."""

    dtype: torch.dtype
    int4: int
    int8: int
    plain: int | None
    """Of weights that are held in bfloat16; None: they get no copy."""


WITH_BFLOAT16: Final = Crossover(torch.bfloat16, int4=12, int8=4, plain=None)
WITHOUT_BFLOAT16: Final = Crossover(torch.float32, int4=48, int8=48, plain=8)

_INNER_K_TILES: Final = 1
_ROW_MULTIPLE: Final = 16
"""The int4 kernel wants so many outputs or a multiple."""
_ZERO_CODE: Final = 8
"""torch's int4 kernels compute ``(code - 8) * scale + zero``."""


class PlainLinear:
    """``x @ weight.T + bias``, computed in the weight's own type."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = weight
        self._bias = None if bias is None else bias.to(weight.dtype)

    def __call__(self, x: Tensor) -> Tensor:
        return functional.linear(x.to(self._weight.dtype), self._weight, self._bias).to(x.dtype)


class BatchSizeLinear:
    """A narrow kernel for few rows and a wide one for many."""

    def __init__(self, narrow: Callable[[Tensor], Tensor], wide: PlainLinear, max_rows: int) -> None:
        self._narrow = narrow
        self._wide = wide
        self._max_rows = max_rows

    def __call__(self, x: Tensor) -> Tensor:
        return self._narrow(x) if x.shape[0] <= self._max_rows else self._wide(x)


def crossover() -> Crossover:
    """Of this machine."""
    return WITH_BFLOAT16 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else WITHOUT_BFLOAT16


def narrow_linear(weight: LinearWeight, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    """The product with ``weight`` as it is held."""
    if isinstance(weight, Tensor):
        return PlainLinear(weight, bias)
    return Int4Linear(weight, bias) if isinstance(weight, Int4Weight) else Int8Linear(weight, bias)


class Int4Linear:
    """bfloat16 activations times 4-bit weights, unpacked in registers. Never holds the wide weight."""

    def __init__(self, weight: Int4Weight, bias: Tensor | None) -> None:
        self._num_outputs = weight.shape[0]
        spare = -self._num_outputs % _ROW_MULTIPLE
        codes = functional.pad(weight.codes.to(torch.int32), (0, 0, 0, spare))
        self._packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, _INNER_K_TILES)
        zero = weight.minimum + _ZERO_CODE * weight.scale
        pairs = functional.pad(torch.stack([weight.scale, zero], dim=-1), (0, 0, 0, 0, 0, spare)).transpose(0, 1)
        self._scale_and_zero = pairs.to(torch.bfloat16).contiguous()
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        product: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
            x.contiguous(), self._packed, INT4_GROUP, self._scale_and_zero
        )
        product = product[:, : self._num_outputs]
        return product if self._bias is None else product + self._bias


class Int8Linear:
    """bfloat16 activations times 8-bit weights with one scale per output."""

    def __init__(self, weight: Int8Weight, bias: Tensor | None) -> None:
        self._codes = weight.codes.contiguous()
        self._scale = weight.scale.to(torch.bfloat16)
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        product: Tensor = torch.ops.aten._weight_int8pack_mm(x.contiguous(), self._codes, self._scale)
        return product if self._bias is None else product + self._bias
