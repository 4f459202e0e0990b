"""What the engine over vLLM uses of vLLM's Python code: calls and their parameters, classes and their members.

A place is ``module:name`` or ``module:Class.name``. That the installed release has them is asked by importing it
(``tests/mindserve_engine/vllm``); that others have them, by reading their wheels."""

from __future__ import annotations

from typing import Final

CALLS: Final[dict[str, tuple[str, ...]]] = {
    "vllm.v1.engine.async_llm:AsyncLLM.from_vllm_config": ("vllm_config", "stat_loggers", "disable_log_stats"),
    "vllm.v1.engine.async_llm:AsyncLLM.generate": (
        *("prompt", "sampling_params", "request_id", "lora_request", "data_parallel_rank"),
    ),
    "vllm.v1.engine.async_llm:AsyncLLM.add_lora": ("lora_request",),
    "vllm.v1.engine.async_llm:AsyncLLM.shutdown": ("timeout",),
    "vllm.v1.engine.core_client:AsyncMPClient.get_output_async": (),
    "vllm.engine.arg_utils:AsyncEngineArgs.create_engine_config": ("headless",),
    "vllm.engine.arg_utils:AsyncEngineArgs.create_model_config": (),
    "vllm.entrypoints.cli.serve:run_headless": ("args",),
    "vllm.inputs:tokens_input": ("prompt_token_ids",),
    "vllm.inputs:mm_input": ("prompt_token_ids", "mm_kwargs", "mm_hashes", "mm_placeholders"),
    "vllm.plugins:load_general_plugins": (),
    "vllm.config.multimodal:MultiModalConfig.get_limit_per_prompt": ("modality",),
    "vllm.multimodal.inputs:MultiModalKwargsItems.from_hf_inputs": ("hf_inputs", "config_by_key"),
    "vllm.multimodal.registry:MultiModalRegistry.create_processor": ("model_config",),
    "vllm.multimodal.registry:MultiModalRegistry.register_processor": ("processor", "info", "dummy_inputs"),
    "vllm.multimodal.processing:BaseMultiModalProcessor._get_mm_fields_config": ("hf_inputs",),
    "vllm.multimodal.processing:BaseProcessingInfo.get_supported_mm_limits": (),
    "vllm.multimodal.processing:BaseProcessingInfo.get_data_parser": (),
    "vllm.v1.metrics.loggers:StatLoggerBase.__init__": ("vllm_config", "engine_index"),
    "vllm.v1.metrics.loggers:StatLoggerBase.record": ("scheduler_stats", "iteration_stats", "engine_idx"),
    "vllm.v1.metrics.loggers:StatLoggerBase.log_engine_initialized": (),
    "vllm.v1.sample.logits_processor:process_dict_updates": ("req_entries", "batch_update", "new_state"),
    "vllm.v1.sample.logits_processor:LogitsProcessor.__init__": ("vllm_config", "device", "is_pin_memory"),
    "vllm.v1.sample.logits_processor:LogitsProcessor.is_argmax_invariant": (),
    "vllm.v1.sample.logits_processor:LogitsProcessor.update_state": ("batch_update",),
    "vllm.v1.sample.logits_processor:LogitsProcessor.apply": ("logits",),
    "vllm.config.model:ModelConfig.get_vocab_size": (),
}
LARGEST_ITEMS: Final = (
    "vllm.multimodal.processing:BaseMultiModalProcessor.get_dummy_mm_inputs",
    "vllm.multimodal.registry:MultiModalRegistry.get_dummy_mm_inputs",
)
"""Who is asked for an example of the largest items, by its ``mm_counts``: one of the two, by the release."""
FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "vllm.v1.engine:EngineCoreOutputs": ("outputs", "scheduler_stats", "timestamp", "engine_index"),
    "vllm.v1.engine:EngineCoreOutput": ("request_id", "new_token_ids", "events"),
    "vllm.v1.engine:EngineCoreEvent": ("type", "timestamp"),
    "vllm.v1.metrics.stats:SchedulerStats": ("kv_cache_usage",),
    "vllm.outputs:CompletionOutput": ("token_ids", "logprobs", "finish_reason", "stop_reason"),
    "vllm.logprobs:Logprob": ("logprob", "rank"),
    "vllm.sampling_params:SamplingParams": (
        *("temperature", "top_k", "top_p", "seed", "repetition_penalty", "presence_penalty", "frequency_penalty"),
        *("logit_bias", "logprobs", "stop_token_ids", "ignore_eos", "max_tokens", "structured_outputs", "extra_args"),
        *("detokenize", "output_kind"),
    ),
    "vllm.sampling_params:StructuredOutputsParams": ("grammar",),
    "vllm.multimodal.inputs:PlaceholderRange": ("offset", "length"),
    "vllm.multimodal.registry:_ProcessorFactories": ("info", "processor", "dummy_inputs"),
    "vllm.lora.request:LoRARequest": ("lora_name", "lora_int_id", "lora_path"),
}
"""Dataclasses and Structs."""
MEMBERS: Final[dict[str, tuple[str, ...]]] = {
    "vllm.v1.engine:EngineCoreEventType": ("QUEUED", "SCHEDULED", "PREEMPTED"),
    "vllm.v1.engine.async_llm:AsyncLLM": ("errored", "engine_core", "output_processor"),
    "vllm.v1.engine.output_processor:OutputProcessor": ("request_states",),
    "vllm.v1.engine.output_processor:RequestState": ("external_req_id",),
    "vllm.outputs:RequestOutput": ("outputs", "num_cached_tokens"),
    "vllm.sampling_params:RequestOutputKind": ("DELTA", "FINAL_ONLY"),
    "vllm.config.model:ModelConfig": (
        *("logits_processors", "max_model_len", "hf_config", "hf_text_config", "quantization", "dtype"),
        *("multimodal_config",),
    ),
    "vllm.platforms.interface:Platform": ("is_cpu",),
    "vllm.v1.worker.cpu_worker:CPUWorker": ("init_device", "model_runner"),
    "vllm.v1.worker.gpu_model_runner:GPUModelRunner": (
        *("_sample", "_bookkeeping_sync", "input_batch", "discard_request_mask"),
    ),
    "vllm.v1.worker.gpu_input_batch:InputBatch": ("generators", "num_reqs"),
    "vllm.config.cache:CacheConfig": ("block_size", "num_gpu_blocks"),
    "vllm.config.scheduler:SchedulerConfig": ("max_num_seqs", "encoder_cache_size"),
    "vllm.config.device:DeviceConfig": ("device_type",),
    "vllm.config.structured_outputs:StructuredOutputsConfig": ("backend",),
    "vllm.config.vllm:VllmConfig": (
        *("model_config", "cache_config", "scheduler_config", "device_config", "speculative_config"),
    ),
}
"""Whatever else a class has: constants, properties, attributes that its methods set."""
ERRORS: Final = (
    "vllm.v1.engine.exceptions:EngineDeadError",
    "vllm.v1.engine.exceptions:EngineGenerateError",
)
ENGINE_ARGS: Final = "vllm.engine.arg_utils:AsyncEngineArgs"
RUN_HEADLESS: Final = "vllm.entrypoints.cli.serve:run_headless"
