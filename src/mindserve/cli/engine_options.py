"""From a config to the engine's name and options: pure functions."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mindserve.config.batch import max_batch_size
from mindserve.config.load import LoadedConfig
from mindserve.config.lower import max_waiting
from mindserve.config.overrides import the_model
from mindserve.config.paths import adapter_path
from mindserve.config.plugins import speculative_tokens
from mindserve.config.vllm_rules import is_vllm
from mindserve_engine.options import MAX_IMAGE_TOKENS, EngineOptions, VllmOptions


class EngineChoice(msgspec.Struct, frozen=True):
    """Which engine, and how it is set up."""

    name: str
    """As ``mindserve_engine.registry`` knows it."""
    options: EngineOptions


def choose_engine(loaded: LoadedConfig, weights: Path) -> EngineChoice:
    """``weights`` is the model's path, the default model's if the config names none."""
    config = loaded.config
    model, schedule = the_model(config), config.backend_config.schedule_config
    backend, deploy = config.backend_config, config.backend_config.model_deploy_config
    options = EngineOptions(
        model_path=weights,
        dtype=model.dtype,
        device=model.device,
        device_ids=[number for numbers in backend.npu_device_ids for number in numbers],
        graphs=model.npu_graph == "auto",
        num_instances=backend.model_instance_number,
        max_context=deploy.max_seq_len,
        max_prompt_tokens=deploy.max_input_token_len,
        max_batch_size=max_batch_size(config)[0],
        max_step_tokens=schedule.max_prefill_tokens,
        max_waiting=max_waiting(loaded),
        block_size=schedule.cache_block_size,
        kv_memory_gb=None if model.npu_mem_size == -1 else float(model.npu_mem_size),
        prefix_cache=schedule.enable_prefix_cache,
        num_threads=model.num_threads,
        deterministic=model.deterministic,
        media_positions=model.media_positions,
        max_media_mb=config.media_config.max_media_in_flight,
        max_media_items=config.media_config.max_media_parts,
        # frames of a video are no smaller for a smaller setting: it is of images alone
        max_image_tokens=max(config.media_config.max_image_tokens, MAX_IMAGE_TOKENS),
        max_video_tokens=config.media_config.max_video_tokens,
        heartbeat_timeout_s=float(backend.engine_heartbeat_timeout),
        adapters={module.name: adapter_path(module, loaded.base) for module in deploy.lora_modules},
        trust_remote_code=model.trust_remote_code,
        engine_args=(backend.vllm_config.engine_args or {}) if is_vllm(config) else {},
        vllm=vllm_options(loaded),
    )
    return EngineChoice(engine_name(model.backend_type), options)


def vllm_options(loaded: LoadedConfig) -> VllmOptions:
    """What is special about the vllm engine; the defaults where another one runs."""
    if not is_vllm(loaded.config):
        return VllmOptions()
    backend, nodes = loaded.config.backend_config, loaded.nodes
    deploy, vllm = backend.model_deploy_config, backend.vllm_config
    return VllmOptions(
        tensor_parallel=loaded.parallel.tensor,
        pipeline_parallel=loaded.parallel.pipeline,
        data_parallel=loaded.parallel.data,
        nodes=() if nodes is None else nodes.addresses,
        node_port=backend.multi_nodes_infer_port,
        speculative_tokens=speculative_tokens(the_model(loaded.config).plugin_params),
        max_loras=deploy.max_loras,
        max_lora_rank=deploy.max_lora_rank,
        stall_timeout_s=float(vllm.stall_timeout),
        start_timeout_s=float(vllm.start_timeout),
        restart=vllm.on_engine_failure == "restart" and nodes is None,
        allow_any_version=vllm.allow_any_version,
    )


def engine_name(backend_type: str) -> str:
    """MindIE's backends (atb, torch, ms) are all the native engine here."""
    return backend_type if backend_type in ("scripted", "vllm") else "native"
