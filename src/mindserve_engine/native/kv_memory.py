"""How many KV blocks a model gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mindserve_engine.interface import EngineError
from mindserve_engine.options import EngineOptions

_GIB: Final = 2**30
_SHARE_OF_FREE_MEMORY: Final = 0.3
"""What the cache takes of the memory that is free once the weights are loaded, unless the operator says otherwise. The
rest is for activations, other programs, and the file cache."""


@dataclass(frozen=True, slots=True)
class KvBudget:
    num_blocks: int
    max_context: int
    """Tokens of prompt and output together."""
    is_cut: bool = False
    """The memory holds fewer tokens than the model and the options would allow."""


def size_kv_cache(options: EngineOptions, *, token_bytes: int, model_limit: int | None, free_bytes: int) -> KvBudget:
    """Blocks within the memory, at most as many as the largest batch of the longest sequences could use.

    Raises ``EngineError`` when the memory cannot hold one sequence of the length the operator asked for; a length that
    only comes from the model is cut down to what fits."""
    wanted = min(length for length in (options.max_context, model_limit, free_bytes) if length is not None)
    block_bytes = token_bytes * options.block_size
    affordable = _budget_bytes(options, free_bytes) // block_bytes
    fitting = affordable * options.block_size
    if fitting < wanted and (options.max_context is not None or affordable < 1):
        raise EngineError(
            f"npuMemSize: the memory for keys and values holds {fitting} tokens, "
            f"one sequence of maxSeqLen {wanted} needs {-(-wanted * token_bytes // 2**20)} MiB"
        )
    max_context = min(wanted, fitting)
    useful = options.max_batch_size * -(-max_context // options.block_size)
    return KvBudget(num_blocks=min(affordable, useful), max_context=max_context, is_cut=fitting < wanted)


def _budget_bytes(options: EngineOptions, free_bytes: int) -> int:
    if options.kv_memory_gb is not None:
        wanted = int(options.kv_memory_gb * _GIB)
        if wanted * options.num_instances > free_bytes:
            raise EngineError(
                f"npuMemSize: {options.kv_memory_gb:g} GB for each of {options.num_instances} model instances is more "
                f"than the {free_bytes / _GIB:.1f} GB that are free"
            )
        return wanted
    return int(free_bytes * _SHARE_OF_FREE_MEMORY / options.num_instances)
