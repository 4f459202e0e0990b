"""Arguments of vLLM's engine that an operator gives by name: which are refused, and why. Pure, and free of vllm."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Final

_ROLES: Final = "the engine's own affair, which its answers depend on"
OWNED: Final[Mapping[str, str]] = {
    "model": "modelWeightPath",
    "tokenizer": "modelWeightPath",
    "model_weights": "modelWeightPath",
    "served_model_name": "modelName",
    "dtype": "dtype",
    "trust_remote_code": "trustRemoteCode",
    "max_model_len": "maxSeqLen",
    "max_num_seqs": "maxBatchSize",
    "max_num_batched_tokens": "maxPrefillTokens",
    "max_num_queued_reqs": "maxQueueSize",
    "block_size": "cacheBlockSize",
    "enable_prefix_caching": "enablePrefixCache",
    "kv_cache_memory_bytes": "npuMemSize",
    "tensor_parallel_size": "tp",
    "pipeline_parallel_size": "pp",
    "data_parallel_size": "dp",
    "data_parallel_size_local": "dp",
    "data_parallel_rank": "dp",
    "data_parallel_start_rank": "dp",
    "data_parallel_address": "VllmConfig.nodes or the rank table",
    "master_addr": "VllmConfig.nodes or the rank table",
    "nnodes": "VllmConfig.nodes or the rank table",
    "node_rank": "VllmConfig.nodes or the rank table",
    "data_parallel_rpc_port": "multiNodesInferPort",
    "master_port": "multiNodesInferPort",
    "enable_lora": "LoraModules",
    "max_loras": "maxLoras",
    "max_cpu_loras": "LoraModules",
    "max_lora_rank": "maxLoraRank",
    "reasoning_parser": "models",
}
"""Argument -> the key of config.json that sets it."""
_NEVER: Final = frozenset(
    {
        "data_parallel_external_lb",
        "data_parallel_hybrid_lb",
        "data_parallel_multi_port_external_lb",
        "disable_log_stats",
        "enable_log_requests",
        "enable_logging_iteration_details",
        "enable_mm_embeds",
        "enable_prompt_embeds",
        "generation_config",
        "logits_processors",
        "logprobs_mode",
        "max_logprobs",
        "media_io_kwargs",
        "mm_encoder_only",
        "mm_processor_cache_gb",
        "mm_processor_kwargs",
        "override_generation_config",
        "runner",
        "skip_tokenizer_init",
        "stream_interval",
        "structured_outputs_config",
        "tokens_only",
        "video_pruning_method",
        "video_pruning_rate",
    }
)
"""What the server counts on."""
_PLAIN: Final[Mapping[str, tuple[type, ...]]] = {"bool": (bool,), "int": (int,), "float": (int, float), "str": (str,)}
_NUM_NEAREST: Final = 3


def extra_argument_problems(
    given: Mapping[str, object], known: Mapping[str, str] | None, used: frozenset[str] = frozenset()
) -> Iterator[tuple[str, str]]:
    """(name, what is wrong with it). ``known``: name -> annotation of all arguments, None where they are not known;
    ``used``: arguments that other settings have set in this case."""
    for name, value in given.items():
        problem = _problem(name, value, known, used)
        if problem is not None:
            yield name, problem


def _problem(name: str, value: object, known: Mapping[str, str] | None, used: frozenset[str]) -> str | None:
    if name in OWNED:
        return f"is set by the key {OWNED[name]}"
    if name in _NEVER:
        return f"is {_ROLES}"
    if name in used:
        return "is set by other keys of this file"
    if known is None:
        return None
    if name not in known:
        near = difflib.get_close_matches(name.lstrip("-").replace("-", "_").lower(), known, n=_NUM_NEAREST)
        hint = f"; near: {', '.join(near)}" if near else ""
        return f"is no argument of the installed vLLM{hint}"
    return _type_problem(value, known[name])


def _type_problem(value: object, annotation: str) -> str | None:
    """Where the annotation is made of plain types alone; the rest vLLM checks itself."""
    kinds = [kind for kind in annotation.split(" | ") if kind != "None"]
    if value is None or not kinds or not all(kind in _PLAIN for kind in kinds):
        return None
    is_right = any(
        isinstance(value, _PLAIN[kind]) and not (isinstance(value, bool) and kind != "bool") for kind in kinds
    )
    return None if is_right else f"is {annotation.replace(' | ', ' or ')}, not {type(value).__name__}"
