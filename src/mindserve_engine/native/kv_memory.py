"""How many KV blocks a model gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mindserve_engine.interface import EngineError
from mindserve_engine.options import EngineOptions

_GIB: Final = 2**30


@dataclass(frozen=True, slots=True)
class CacheRoom:
    """Memory of a device that is left for keys and values."""

    free_bytes: int
    share: float
    """What the cache takes of it, unless the operator says otherwise."""
    is_shared: bool
    """All instances live in the same memory."""


@dataclass(frozen=True, slots=True)
class KvBudget:
    num_blocks: int
    max_context: int
    """Tokens of prompt and output together."""
    is_cut: bool = False
    """The memory holds fewer tokens than the model and the options would allow."""


def size_kv_cache(
    options: EngineOptions, room: CacheRoom, *, token_bytes: int, model_limit: int | None, block_size: int
) -> KvBudget:
    """Blocks within the memory, at most as many as the largest batch of the longest sequences could use.

    Raises ``EngineError`` when the memory cannot hold one sequence of the length the operator asked for; a length that
    only comes from the model is cut down to what fits."""
    wanted = min(length for length in (options.max_context, model_limit, room.free_bytes) if length is not None)
    block_bytes = token_bytes * block_size
    affordable = _budget_bytes(options, room) // block_bytes
    fitting = affordable * block_size
    if fitting < wanted and (options.max_context is not None or affordable < 1):
        raise EngineError(
            f"npuMemSize: the memory for keys and values holds {fitting} tokens, "
            f"one sequence of maxSeqLen {wanted} needs {-(-wanted * token_bytes // 2**20)} MiB"
        )
    max_context = min(wanted, fitting)
    useful = options.max_batch_size * -(-max_context // block_size)
    return KvBudget(num_blocks=min(affordable, useful), max_context=max_context, is_cut=fitting < wanted)


def _budget_bytes(options: EngineOptions, room: CacheRoom) -> int:
    num_sharing = options.num_instances if room.is_shared else 1
    if options.kv_memory_gb is not None:
        wanted = int(options.kv_memory_gb * _GIB)
        if wanted * num_sharing > room.free_bytes:
            raise EngineError(
                f"npuMemSize: {options.kv_memory_gb:g} GB for each of {num_sharing} model instances is more "
                f"than the {room.free_bytes / _GIB:.1f} GB that are free"
            )
        return wanted
    return int(room.free_bytes * room.share / num_sharing)
