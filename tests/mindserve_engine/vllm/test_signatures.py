"""The names and signatures of vLLM's that the engine uses, read from the installed release: drift shows here, without
starting an engine."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vllm is not installed here")

from mindserve_engine.options import EngineOptions
from mindserve_engine.vllm.arguments import engine_arguments

CALLS = [
    ("vllm.v1.engine.async_llm:AsyncLLM.from_vllm_config", ("vllm_config", "stat_loggers", "disable_log_stats")),
    ("vllm.v1.engine.async_llm:AsyncLLM.generate", ("prompt", "sampling_params", "request_id", "lora_request")),
    ("vllm.v1.engine.async_llm:AsyncLLM.abort", ("request_id",)),
    ("vllm.v1.engine.async_llm:AsyncLLM.add_lora", ("lora_request",)),
    ("vllm.v1.engine.async_llm:AsyncLLM.check_health", ()),
    ("vllm.v1.engine.async_llm:AsyncLLM.shutdown", ("timeout",)),
    ("vllm.v1.engine.core_client:AsyncMPClient.get_output_async", ()),
    ("vllm.engine.arg_utils:AsyncEngineArgs.create_engine_config", ()),
    ("vllm.engine.arg_utils:AsyncEngineArgs.create_model_config", ()),
    ("vllm.inputs:tokens_input", ("prompt_token_ids",)),
    ("vllm.inputs:mm_input", ("prompt_token_ids", "mm_kwargs", "mm_hashes", "mm_placeholders")),
    ("vllm.plugins:load_general_plugins", ()),
    ("vllm.config.multimodal:MultiModalConfig.get_limit_per_prompt", ("modality",)),
    ("vllm.multimodal.inputs:MultiModalKwargsItems.from_hf_inputs", ("hf_inputs", "config_by_key")),
    ("vllm.multimodal.registry:MultiModalRegistry.create_processor", ("model_config",)),
    ("vllm.multimodal.registry:MultiModalRegistry.register_processor", ("processor", "info", "dummy_inputs")),
    ("vllm.multimodal.processing:BaseMultiModalProcessor.get_dummy_mm_inputs", ("mm_counts",)),
    ("vllm.multimodal.processing:BaseMultiModalProcessor._get_mm_fields_config", ("hf_inputs",)),
    ("vllm.multimodal.processing:BaseProcessingInfo.get_supported_mm_limits", ()),
    ("vllm.multimodal.processing:BaseProcessingInfo.get_data_parser", ()),
    ("vllm.v1.metrics.loggers:StatLoggerBase.record", ("scheduler_stats", "iteration_stats", "engine_idx")),
    ("vllm.v1.sample.logits_processor.builtin:process_dict_updates", ("req_entries", "batch_update", "new_state")),
]
_PARAMS = (
    *("temperature", "top_k", "top_p", "seed", "repetition_penalty", "presence_penalty", "frequency_penalty"),
    *("logit_bias", "logprobs", "stop_token_ids", "ignore_eos", "max_tokens", "structured_outputs", "extra_args"),
    *("detokenize", "output_kind"),
)
FIELDS = [
    ("vllm.v1.engine:EngineCoreOutputs", ("outputs", "scheduler_stats", "timestamp", "engine_index")),
    ("vllm.v1.engine:EngineCoreOutput", ("request_id", "new_token_ids", "events")),
    ("vllm.v1.metrics.stats:SchedulerStats", ("kv_cache_usage",)),
    ("vllm.outputs:CompletionOutput", ("token_ids", "logprobs", "finish_reason", "stop_reason")),
    ("vllm.logprobs:Logprob", ("logprob", "rank")),
    (
        "vllm.sampling_params:SamplingParams",
        [
            "temperature",
            "top_k",
            "top_p",
            "seed",
            "repetition_penalty",
            "presence_penalty",
            "frequency_penalty",
            "logit_bias",
            "logprobs",
            "stop_token_ids",
            "ignore_eos",
            "max_tokens",
            "structured_outputs",
            "extra_args",
            "detokenize",
            "output_kind",
        ],
    ),
    ("vllm.sampling_params:StructuredOutputsParams", ("grammar",)),
    ("vllm.multimodal.inputs:PlaceholderRange", ("offset", "length")),
    ("vllm.multimodal.registry:_ProcessorFactories", ("info", "processor", "dummy_inputs")),
    ("vllm.lora.request:LoRARequest", ("lora_name", "lora_int_id", "lora_path")),
]


def found(place: str) -> Any:
    module, _, path = place.partition(":")
    thing: Any = importlib.import_module(module)
    for name in path.split("."):
        thing = getattr(thing, name)
    return thing


@pytest.mark.parametrize(("place", "names"), CALLS, ids=[place for place, _ in CALLS])
def test_calls(place: str, names: tuple[str, ...]) -> None:
    assert set(names) <= set(inspect.signature(found(place)).parameters)


@pytest.mark.parametrize(("place", "names"), FIELDS, ids=[place for place, _ in FIELDS])
def test_fields(place: str, names: tuple[str, ...]) -> None:
    kind = found(place)
    if dataclasses.is_dataclass(kind):
        fields = {field.name for field in dataclasses.fields(kind)}
    else:
        fields = set(kind.__struct_fields__)
    assert set(names) <= fields


def test_engine_arguments(tmp_path: Any) -> None:
    (tmp_path / "config.json").write_text("{}")
    options = EngineOptions(model_path=tmp_path, kv_memory_gb=1.0, adapters={"one": tmp_path})
    known = {field.name for field in dataclasses.fields(found("vllm.engine.arg_utils:AsyncEngineArgs"))}
    assert set(engine_arguments(options, lora_rank=8)) <= known


def test_event_types() -> None:
    assert {"QUEUED", "SCHEDULED", "PREEMPTED"} <= {one.name for one in found("vllm.v1.engine:EngineCoreEventType")}


def test_errors() -> None:
    for name in ("EngineDeadError", "EngineGenerateError"):
        assert issubclass(found(f"vllm.v1.engine.exceptions:{name}"), Exception)


def test_the_logits_processor_is_one() -> None:
    from vllm.v1.sample.logits_processor import LogitsProcessor

    from mindserve_engine.vllm.temperature import PLACE, TemperatureOutside

    assert found(PLACE) is TemperatureOutside
    assert issubclass(TemperatureOutside, LogitsProcessor)
    assert not inspect.isabstract(TemperatureOutside)
