"""Starts vLLM's engine. Blocking: imports and weights take from seconds to minutes."""

from __future__ import annotations

import copy
import dataclasses
import os
from typing import Any, Final

import msgspec

from mindserve_engine.first_line import first_line
from mindserve_engine.first_look import look_at
from mindserve_engine.interface import EngineError, EngineNotStarted
from mindserve_engine.model_folder import default_top_k, eos_token_ids
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import Capability, EngineInfo
from mindserve_engine.vllm.adapters import largest_rank
from mindserve_engine.vllm.addresses import numeric
from mindserve_engine.vllm.arguments import engine_arguments, optional_arguments, set_environment
from mindserve_engine.vllm.media import KINDS, TakenMedia, set_media_environment, taken
from mindserve_engine.vllm.plugin import register

_CPU_WORKER: Final = "mindserve_engine.vllm.cpu_worker.MendedCpuWorker"
"""As vLLM's setting ``worker_cls`` names it."""
_CAPABILITIES: Final = frozenset(
    {
        Capability.PARALLEL_SAMPLING,
        Capability.BEAM_SEARCH,
        Capability.LOGPROBS,
        Capability.LOGIT_BIAS,
        Capability.GRAMMAR,
    }
)


@dataclasses.dataclass(frozen=True, slots=True)
class Launched:
    """An engine of vLLM's whose core answers."""

    llm: Any
    """``AsyncLLM``."""
    info: EngineInfo
    has_all_temperatures: bool
    """Whether ``temperature.TemperatureOutside`` runs in its workers."""
    media: TakenMedia | None
    """``None``: it takes text alone."""


def launch(options: EngineOptions) -> Launched:
    """Raises ``EngineError`` with one line, of which ``EngineNotStarted`` when vLLM takes its settings and then fails,
    ``ImportError`` where vllm is not installed."""
    _, config, has_all_temperatures = prepare(options)
    media = _media(config, options)
    from vllm.v1.engine.async_llm import AsyncLLM

    from mindserve_engine.vllm.figures import NoFigures

    try:
        llm = AsyncLLM.from_vllm_config(config, stat_loggers=[NoFigures], disable_log_stats=True)
    except Exception as error:  # whatever a machine without room makes vLLM raise, or a process of it that dies
        raise EngineNotStarted(_cannot_run(options, error)) from error
    return Launched(llm, _info(config, options, media), has_all_temperatures, media)


def prepare(options: EngineOptions, *, headless: bool = False) -> tuple[Any, Any, bool]:
    """vLLM's ``AsyncEngineArgs``, the ``VllmConfig`` that comes of them, and whether temperatures beyond vLLM's go.
    Raises as ``launch``.

    ``headless``: for a machine that does not serve."""
    set_environment(os.environ)
    if len(options.vllm.nodes) > 1:
        nodes = (numeric(options.vllm.nodes[0]), *options.vllm.nodes[1:])
        options = msgspec.structs.replace(options, vllm=msgspec.structs.replace(options.vllm, nodes=nodes))
    arguments = engine_arguments(options, lora_rank=largest_rank(options.adapters))
    look_at(options.model_path)
    set_media_environment(options, os.environ)
    from vllm.engine.arg_utils import AsyncEngineArgs  # here, not above: it takes seconds, and reads the environment

    known = {field.name for field in dataclasses.fields(AsyncEngineArgs)}
    unknown = sorted(set(arguments) - known)
    if unknown:
        raise EngineError(f"this release of vLLM has no engine argument {', '.join(unknown)}")
    try:
        args = AsyncEngineArgs(**(optional_arguments(dict.fromkeys(known)) | arguments))
        _mend_cpu(args)
        register()  # vLLM calls it once in a process, which may serve other models later
        if "max_model_len" not in options.engine_args:
            args.max_model_len = _max_context(args, options)
        # Of a copy: it writes into the arguments what it has inferred, and would not take that a second time.
        config = copy.copy(args).create_engine_config(headless=headless)
    except Exception as error:  # whatever a strange folder makes vLLM raise
        raise EngineError(_cannot_run(options, error)) from error
    return args, config, _add_temperatures(config)


def _cannot_run(options: EngineOptions, error: Exception) -> str:
    return f"vLLM cannot run {options.model_path}: {first_line(error)}"


def _max_context(args: Any, options: EngineOptions) -> int:
    """vLLM refuses a length above the model's own."""
    longest = int(args.create_model_config().max_model_len)
    return min(longest, options.max_context or longest)


def _mend_cpu(args: Any) -> None:
    from vllm.platforms import current_platform

    if current_platform.is_cpu() and args.worker_cls == "auto":
        args.worker_cls = _CPU_WORKER


def _add_temperatures(config: Any) -> bool:
    """Whether the workers can be given a logits processor of ours: vLLM's second model runner takes other ones."""
    if getattr(config, "use_v2_model_runner", False) or config.speculative_config is not None:
        return False
    from mindserve_engine.vllm.temperature import PLACE

    config.model_config.logits_processors = [*(config.model_config.logits_processors or ()), PLACE]
    return True


def _media(config: Any, options: EngineOptions) -> TakenMedia | None:
    from mindserve_engine.media.facts import read_media  # here: it imports torch and transformers

    model, scheduler = config.model_config, config.scheduler_config
    kinds = KINDS.get(str(model.hf_config.model_type), ())
    if not kinds:
        return None
    limits = {kind: int(model.multimodal_config.get_limit_per_prompt(kind.value)) for kind in kinds}
    return taken(
        read_media(options.model_path, model.hf_config, options.max_image_tokens),
        limits,
        encoder_tokens=int(scheduler.encoder_cache_size),
        video_tokens=min(options.max_video_tokens, int(model.max_model_len)),
    )


def _info(config: Any, options: EngineOptions, media: TakenMedia | None) -> EngineInfo:
    model, cache = config.model_config, config.cache_config
    vocab_size = int(model.get_vocab_size())
    configs = (model.hf_config.to_dict(), model.hf_text_config.to_dict())
    max_context = int(model.max_model_len)
    return EngineInfo(
        model_type=str(model.hf_config.model_type),
        vocab_size=vocab_size,
        max_context=max_context,
        max_prompt_tokens=min(options.max_prompt_tokens or max_context - 1, max_context - 1),
        eos_token_ids=eos_token_ids(options.model_path, *configs, vocab_size=vocab_size),
        default_top_k=default_top_k(options.model_path),
        block_size=int(cache.block_size or 0),
        num_blocks=int(cache.num_gpu_blocks or 0),
        max_batch_size=int(config.scheduler_config.max_num_seqs),
        capabilities=_CAPABILITIES
        | ({Capability.LORA} if options.adapters else frozenset())
        | ({Capability.MEDIA} if media else frozenset()),
        adapters=tuple(options.adapters),
        media=None if media is None else media.model,
        device=str(config.device_config.device_type),
        weights=str(model.quantization or model.dtype).removeprefix("torch."),
    )
