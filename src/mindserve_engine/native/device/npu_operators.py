"""The operators of torch_npu that the engine calls, which have no type stubs.

Signatures as torch_npu 2.13.0 registers them; ``tests/npu_emulation/manifest.py`` has them in full. First tensors are
passed by position: the dispatcher calls them ``input`` where the documentation says ``self``."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from mindserve_engine.native.device.card_memory import MemoryFigures


class NpuOperators(Protocol):
    """Of the module ``torch_npu``. Nothing here waits for the device."""

    def npu_rms_norm(self, input: Tensor, gamma: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:  # noqa: A002
        """The norm over the last dimension, and 1 / the root mean square. ``gamma`` has the type of ``input``."""

    def npu_add_rms_norm(self, x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
        """The norm of ``x1 + x2``, 1 / the root mean square, and the sum."""

    def npu_rotary_mul(self, input: Tensor, r1: Tensor, r2: Tensor) -> Tensor:  # noqa: A002
        """[1, T, heads, D] rotated by halves; cosines and sines [1, T, 1, D]."""

    def npu_apply_rotary_pos_emb(
        self, query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, layout: str, rotary_mode: str
    ) -> tuple[Tensor, Tensor]:
        """The same for both at once, D 64 or 128, layout TND. It works in place, though its schema does not say so: the
        inputs must not be used any more."""

    def npu_swiglu(self, input: Tensor) -> Tensor:  # noqa: A002
        """silu of the first half of the last dimension times the second."""

    def npu_scatter_pa_kv_cache(
        self,
        key: Tensor,
        value: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        slot_mapping: Tensor,
        *,
        cache_mode: str,
    ) -> None:
        """[T, KV, D] into slots of [blocks, block size, KV, D]. All contiguous and of one type; slots are unique."""

    def npu_fused_infer_attention_score(self, query: Tensor, key: Tensor, value: Tensor, **settings: Any) -> Any:
        """[T, H, D] attends over blocks [blocks, block size, KV * D]; the result's first item is [T, H, D]. While a
        graph is captured the result is a list instead of a tuple."""


class NpuRuntime(MemoryFigures, Protocol):
    """Of the module ``torch.npu``."""

    NPUGraph: Any
    graph: Any
    utils: Any

    def graph_pool_handle(self) -> Any: ...

    def current_stream(self) -> Any: ...

    def set_device(self, device: int) -> None: ...

    def device_count(self) -> int: ...

    def get_device_name(self) -> str: ...
