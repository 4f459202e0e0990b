"""From our options to the arguments of vLLM's engine: pure, and free of vllm."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from mindserve_engine.interface import EngineError
from mindserve_engine.options import EngineOptions
from mindserve_engine.vllm.adapters import room_for_rank
from mindserve_engine.vllm.media import media_arguments
from mindserve_engine.vllm.scale import scale_arguments

ALL_LOGPROBS: Final = -1
"""vLLM's word for: as many as the vocabulary has. What requests may ask for is checked before vLLM sees them."""
_ENVIRONMENT: Final = {
    # The server has threads, and a fork of a process with threads may never come out of a lock.
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_NO_USAGE_STATS": "1",  # no word to anybody about who serves what
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # standard output is the server's, for its ready line
    "VLLM_CONFIGURE_LOGGING": "1",
}


def set_environment(environ: MutableMapping[str, str]) -> None:
    """What vLLM reads of the environment only; whoever started the process has the last word. Before vllm is
    imported."""
    for name, value in _ENVIRONMENT.items():
        environ.setdefault(name, value)


def engine_arguments(options: EngineOptions, *, lora_rank: int = 0) -> dict[str, Any]:
    """Arguments by the names of vLLM's EngineArgs, all but the length of the context. ``lora_rank``: the largest of
    the adapters'. Raises ``EngineError`` for what vLLM cannot do."""
    if options.dtype == "int4":
        raise EngineError(
            "vLLM does not quantise a model while it loads: give it a quantised folder and the dtype auto"
        )
    if options.model_path.is_file():
        raise EngineError(f"{options.model_path}: vLLM takes a model folder in transformers' format, not one file")
    if not (options.model_path / "config.json").is_file():
        raise EngineError(f"{options.model_path}: no config.json in the model folder")
    arguments: dict[str, Any] = {
        "model": str(options.model_path),
        "dtype": options.dtype,
        "trust_remote_code": options.trust_remote_code,
        "max_num_seqs": options.max_batch_size,
        "max_num_batched_tokens": max(options.max_step_tokens, options.max_batch_size),
        "enable_prefix_caching": options.prefix_cache,
        "block_size": options.block_size,
        "max_logprobs": ALL_LOGPROBS,
        "generation_config": "vllm",  # defaults of sampling are the server's affair
        "structured_outputs_config": {"backend": "guidance"},  # the one that reads our grammars
        "disable_log_stats": True,  # no log lines; the figures come through a logger of ours
    }
    if options.kv_memory_gb is not None:
        arguments["kv_cache_memory_bytes"] = int(options.kv_memory_gb * 2**30)
    if options.adapters:
        # one that must be loaded again for a request would hold up everybody
        num_adapters = len(options.adapters)
        num_running = min(options.vllm.max_loras, num_adapters) or num_adapters
        arguments |= {"enable_lora": True, "max_loras": num_running, "max_cpu_loras": num_adapters}
        arguments["max_lora_rank"] = max(lora_rank, room_for_rank(options.vllm.max_lora_rank))
    arguments |= media_arguments(options) | scale_arguments(options.vllm)
    return arguments | dict(options.engine_args)


def optional_arguments(known: Mapping[str, object]) -> dict[str, Any]:
    """Arguments that not all releases have (``known``: the fields of the installed one's)."""
    wanted = {"enable_logging_iteration_details": True}
    return {name: value for name, value in wanted.items() if name in known}
