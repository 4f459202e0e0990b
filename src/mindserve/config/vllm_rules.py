"""What the vllm engine cannot do of what a config may ask for, and what has no effect with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mindserve.config._generated import Config
from mindserve.config.faults import Fault
from mindserve.config.overrides import the_model
from mindserve.config.packaged import PackagedModel
from mindserve.config.paths import model_place
from mindserve.config.plugins import ALWAYS_ON, MTP, PluginParamsInvalid, plugin_types, speculative_tokens
from mindserve.errors import shown

_MODEL: Final = "BackendConfig.ModelDeployConfig.ModelConfig[0]"


def is_vllm(config: Config) -> bool:
    return the_model(config).backend_type == "vllm"


def vllm_faults(config: Config, base: Path) -> Iterator[Fault]:
    """``base`` is where relative paths start."""
    if not is_vllm(config):
        return
    backend, model = config.backend_config, the_model(config)
    place = model_place(config, base)
    if isinstance(place, PackagedModel) or place.suffix == ".gguf":
        problem = "the vllm engine takes a folder in transformers' layout, no .gguf file"
        yield Fault(f"{_MODEL}.modelWeightPath", problem)
    if backend.model_instance_number > 1:
        problem = f"{backend.model_instance_number}: copies of the model are dp with the vllm engine"
        yield Fault("BackendConfig.modelInstanceNumber", problem)
    if model.deterministic:
        yield Fault(f"{_MODEL}.deterministic", "true: the vllm engine does not promise it")
    if model.dtype == "int4":
        problem = '"int4" is how the native engine holds weights: vLLM reads the quantisation from the weights'
        yield Fault(f"{_MODEL}.dtype", problem)
    if not isinstance(backend.vllm_config.engine_args, dict | None):
        problem = f"{shown(backend.vllm_config.engine_args)} is not an object"
        yield Fault("BackendConfig.VllmConfig.engineArgs", problem)
    yield from _plugin_faults(config)


def _plugin_faults(config: Config) -> Iterator[Fault]:
    params = the_model(config).plugin_params
    try:
        has_mtp = MTP in plugin_types(params)
    except PluginParamsInvalid:  # told by another rule
        return
    try:
        speculative_tokens(params)
    except PluginParamsInvalid as error:
        yield Fault(f"{_MODEL}.plugin_params", str(error))
    if has_mtp and "speculative_config" in (config.backend_config.vllm_config.engine_args or {}):
        problem = "speculative_config: mtp of plugin_params sets it already"
        yield Fault("BackendConfig.VllmConfig.engineArgs", problem)


def vllm_notes(config: Config) -> Iterator[str]:
    """What an operator should know of the engine, one line each."""
    backend, model = config.backend_config, the_model(config)
    if not is_vllm(config):
        if backend.vllm_config.model_fields_set:
            yield "VllmConfig has no effect: backendType is not vllm"
        return
    given = {
        "numThreads": "num_threads" in model.model_fields_set,
        "mediaPositions": "media_positions" in model.model_fields_set,
    }
    given["engineHeartbeatTimeout"] = "engine_heartbeat_timeout" in backend.model_fields_set
    if any(given.values()):
        yield f"no effect with the vllm engine: {', '.join(key for key, is_given in given.items() if is_given)}"
    if backend.multi_nodes_infer_enabled:
        yield "vLLM does not encrypt what it sends between machines: keep that network private"
        if backend.vllm_config.on_engine_failure == "restart":
            yield "onEngineFailure: with several machines the server ends, for their supervisors to start them all"
    elif backend.vllm_config.nodes:
        yield "VllmConfig.nodes has no effect: multiNodesInferEnabled is false"


def plugins_without_effect(config: Config) -> list[str]:
    """Names in plugin_params that change nothing."""
    used = ALWAYS_ON | {MTP} if is_vllm(config) else ALWAYS_ON
    return [name for name in plugin_types(the_model(config).plugin_params) if name not in used]
