"""What a device must do for the models: one small protocol, shaped by the fused operators of NPUs and GPUs.

The order of work in each layer is fixed: ``write_kv`` first, then one ``attention`` call over the whole flattened
batch. Decode rows, whole prompts and chunks with history are all the same call; only the device tells them apart.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from mindserve_engine.native.batch import StepBatch
from mindserve_engine.native.kv_memory import CacheRoom
from mindserve_engine.native.weights.quantised import LinearWeight

Linear = Callable[[Tensor], Tensor]
"""[T, in] -> [T, out]."""


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """What attention needs to know beside its inputs."""

    scale: float
    window: int | None = None
    """Sliding window: a token sees itself and the ``window - 1`` tokens before it."""
    softcap: float | None = None
    """Scores become ``softcap * tanh(score / softcap)``."""
    sinks: Tensor | None = None
    """[H] learnt scores that take part in the softmax and then drop out."""


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Of the attention of a model's layers."""

    heads: int
    kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class LayerWidths:
    """Of the small operators of a model's layers."""

    hidden: int
    inner: int


@dataclass(slots=True)
class DeviceBatch:
    """A ``StepBatch`` on the device."""

    token_ids: Tensor
    """[T] int64."""
    positions: Tensor
    """[T] int64; [3, T] where a sequence counts in M-RoPE."""
    last_rows: Tensor
    """[S] int64: rows of [T] whose successors are sampled, in the order of ``StepBatch.samples``."""
    adapter_rows: dict[str, Tensor]
    """[n] int64 rows of [T] by LoRA adapter."""
    overlays: list[tuple[int, Tensor]] = field(default_factory=list, kw_only=True)
    """Embeddings [n, hidden] that take the place of those of the tokens, each from a row of [T] on."""
    plan: Any
    """What the device worked out for attention and cache writes; its own affair."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes."""

    free: int
    total: int


LayerCache = Any
"""Keys and values of one layer, in the device's own layout."""


@dataclass(frozen=True, slots=True)
class LayerParts:
    """What a decoder layer is made of."""

    input_norm: Tensor
    """[hidden]."""
    qkv: Linear
    """Queries, keys and values side by side."""
    qk_norm: Tensor | None
    """[H + KV, D]: the query norm for each query head, then the key norm for each key head."""
    output: Linear
    post_norm: Tensor
    """[hidden]."""
    gate_up: Linear
    down: Linear
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    attention: AttentionSpec


class Layer(Protocol):
    """One decoder layer."""

    def __call__(
        self, fed: Tensor | None, residual: Tensor, factors: Any, batch: DeviceBatch, cache: LayerCache
    ) -> tuple[Tensor, Tensor]:
        """[T, hidden] twice: what the layer before fed forward (``None`` for the first) and what it was to be added to.
        Returns the same of this layer; both inputs may be written over. ``factors`` are from ``rotary_factors``."""


class CapturedStep(Protocol):
    """Work that was captured once."""

    output: Tensor
    """What the captured function returned; each replay writes it again."""

    def replay(self, kv_lengths: list[int]) -> None:
        """Run it with what its inputs hold now and these lengths. Nothing that was replayed before may still run."""

    def release(self) -> None:
        """Give back what the device keeps for it: it is not replayed any more."""


class GraphBackend(Protocol):
    """How one kind of device captures work."""

    def new_pool(self) -> None:
        """What is captured from now on shares memory of its own: only one captured step runs at a time."""

    def capture(self, run: Callable[[], Tensor]) -> CapturedStep:
        """Capture the work of ``run``, which has been run before at the same sizes. Raises ``RuntimeError`` when the
        device has no room for another graph."""


class Device(Protocol):
    """Kernels, memory and cache layout of one device. Not thread-safe."""

    name: str
    torch_device: torch.device
    block_size: int
    """Tokens per KV block: what ``cacheBlockSize`` asks for, where this device can do that."""
    sum_dtype: torch.dtype
    """The widest type in which probabilities can be summed."""
    graphs: GraphBackend | None
    """What captures decode steps; ``None``: they are always run operator by operator."""

    def loading(self) -> AbstractContextManager[None]:
        """Around all work on the device before it is ready to serve."""

    def self_test(
        self, shape: AttentionShape, dtype: torch.dtype, spec: AttentionSpec, widths: LayerWidths | None = None
    ) -> None:
        """Before anything is served: raise ``EngineError`` when the device cannot compute layers of a model that attend
        like this, or computes them wrongly. ``widths``: where the model leaves norms and activations to the device."""

    def memory(self) -> Memory: ...

    def cache_room(
        self, widest_steps: Callable[[], int], captured: Callable[[], AbstractContextManager[int]]
    ) -> CacheRoom:
        """Memory that the cache may have, when the model is loaded. ``widest_steps`` runs the steps that take most over
        a cache of its own and returns that cache's bytes, which are free again; while ``captured()`` is entered, all
        decode steps are there that will be captured, and so many bytes beyond them as it gives. Raises ``EngineError``
        when there is not enough for them."""

    def synchronize(self) -> None:
        """Return when all work is done that the device was given."""

    def kv_cache(
        self, *, num_layers: int, num_blocks: int, block_size: int, kv_heads: int, head_dim: int, dtype: torch.dtype
    ) -> list[LayerCache]: ...

    def upload(self, batch: StepBatch) -> DeviceBatch:
        """In one copy to the device."""

    def host_buffer(self, num_words: int) -> Tensor:
        """So many int64 on the host, [n], in memory that the device can copy from while the host goes on. It is not
        given out again before copies from it are done."""

    def compute_dtype(self, held: torch.dtype, *, quantised: bool) -> torch.dtype:
        """Of the activations of a model whose weights are ``held`` in that type, or are ``quantised`` but for a few:
        the same, unless this device has no arithmetic for it or a better one."""

    def linear(self, weight: LinearWeight, bias: Tensor | None, dtype: torch.dtype) -> Linear:
        """The fastest way this device has to multiply activations of ``dtype`` by ``weight`` at each batch size."""

    def layer(self, parts: LayerParts) -> Layer:
        """The fastest way this device has to run such a layer."""

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """RMS norm over the last dimension; the weight is [D], or [heads, D] for norms of queries and keys."""

    def add_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """``residual + x``, normed; and the sum itself."""

    def rotary_factors(self, cos: Tensor, sin: Tensor) -> Any:
        """Once per step: [T, D] cosines and sines in the form ``rotate`` wants."""

    def rotate(self, query_key: Tensor, heads: int, factors: Any) -> tuple[Tensor, Tensor]:
        """[T, H + KV, D] rotated by halves (NeoX order) -> queries [T, H, D] and keys [T, KV, D]."""

    def swiglu(self, gate_up: Tensor) -> Tensor:
        """[T, 2 F] -> [T, F]: silu of the first half times the second."""

    def write_kv(self, key: Tensor, value: Tensor, cache: LayerCache, batch: DeviceBatch) -> None:
        """[T, KV, D] each into the slots of the batch, in the cache's own type."""

    def copy_blocks(self, caches: list[LayerCache], pairs: list[tuple[int, int]]) -> None:
        """Copy whole blocks of all layers, (from, to) each: all are read before any is written. Destinations are
        unique."""

    def attention(
        self, query: Tensor, key: Tensor, value: Tensor, cache: LayerCache, batch: DeviceBatch, spec: AttentionSpec
    ) -> Tensor:
        """[T, H, D] -> [T, H * D], causal over what ``cache`` holds for each sequence. ``key`` and ``value`` are those
        just written: a sequence without history may be computed from them."""
