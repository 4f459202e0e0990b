"""Products with weights on CPU: which kernel at which batch size.

Few rows are bound by reading the weights, many by arithmetic. Measured (all linears of one step of a 135M model, ms) on
two Zen 4 cores, which have bfloat16 arithmetic, and on two Zen 3 cores (AVX2), which have not:

| rows | 1 | 4 | 8 | 12 | 16 | 32 | 64 | 512 |
|---|---|---|---|---|---|---|---|---|
| Zen 4, int4 | 4.5 | 7.5 | 14 | 21 | 27 | 52 | 103 | |
| Zen 4, bfloat16 | 19 | 22 | 23 | 35 | 26 | 37 | 60 | 345 |
| Zen 3, int4 | 12 | 16 | 28 | | 53 | 119 | 249 | 1825 |
| Zen 3, int8 | 18 | 30 | 45 | | 76 | 117 | 205 | 1864 |
| Zen 3, bfloat16 | 20 | 59 | 117 | | 230 | 379 | 783 | |
| Zen 3, float32 | 46 | 90 | 75 | | 89 | 111 | 175 | 896 |
| Zen 3, float16 (FBGEMM) | 18 | 20 | 29 | | 38 | 61 | 93 | 749 |

FBGEMM keeps the weights as float16, reads half of what float32 does and widens in registers: activations and sums are
float32, and weights that were bfloat16 or 4 bits lose nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from mindserve_engine.native.weights.quantised import GROUP, Int4Weight

INT4_ROWS: Final = {torch.bfloat16: 12, torch.float16: 12, torch.float32: 32}
"""Rows up to which 4 bits are faster than a copy in that type."""
INT4_ROWS_FLOAT16: Final = 8
"""The same beside a float16 copy with float32 arithmetic."""

_MAX_WAITING: Final = 2
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

    def __init__(self, narrow: Callable[[Tensor], Tensor], wide: Callable[[Tensor], Tensor], max_rows: int) -> None:
        self._narrow = narrow
        self._wide = wide
        self._max_rows = max_rows

    def __call__(self, x: Tensor) -> Tensor:
        return self._narrow(x) if x.shape[0] <= self._max_rows else self._wide(x)


class HalfLinear:
    """float32 activations times float16 weights, which FBGEMM holds packed. Only where ``can_be_half``."""

    def __init__(self, packed: Future[Any]) -> None:
        """``packed``: from a ``HalfPacker``."""
        self._packed = packed

    def __call__(self, x: Tensor) -> Tensor:
        product: Tensor = torch.ops.quantized.linear_dynamic_fp16(x, self._packed.result())
        return product


class HalfPacker:
    """Packs weights in a thread of its own while the next ones are read: it takes as long as all the rest of loading,
    and FBGEMM does it with one thread."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="pack-weights")
        self._waiting: deque[Future[Any]] = deque()

    def pack(self, weight: Tensor, bias: Tensor | None) -> HalfLinear:
        while len(self._waiting) >= _MAX_WAITING:  # they are held in float32 until their turn comes
            self._waiting.popleft().result()
        packed = self._executor.submit(_pack, weight, bias)
        self._waiting.append(packed)
        return HalfLinear(packed)

    def finish(self) -> None:
        """Return when all is packed. Raises what went wrong."""
        while self._waiting:
            self._waiting.popleft().result()


def _pack(weight: Tensor, bias: Tensor | None) -> Any:
    with torch.inference_mode():
        return torch.ops.quantized.linear_prepack_fp16(weight.float(), None if bias is None else bias.float())


def can_be_half(weight: Tensor) -> bool:
    """Whether this build of torch has FBGEMM and no weight is too large for float16."""
    has_kernel = "fbgemm" in torch.backends.quantized.supported_engines
    if not has_kernel:
        return False
    least, most = weight.aminmax()  # no copy, as the absolute values would be
    return max(-float(least), float(most)) <= torch.finfo(torch.float16).max


def has_arithmetic(dtype: torch.dtype) -> bool:
    """Whether this CPU multiplies numbers of that type faster than by widening them one by one."""
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    if dtype == torch.float16:
        return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    return True


class Int4Linear:
    """Activations as bfloat16 times 4-bit weights, unpacked in registers. Never holds the wide weight."""

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
            x.to(torch.bfloat16).contiguous(), self._packed, GROUP, self._scale_and_zero
        )
        product = product[:, : self._num_outputs].to(x.dtype)
        return product if self._bias is None else product + self._bias
