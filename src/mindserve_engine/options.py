"""How an engine is set up. The server fills this from MindIE's config.json; a library user fills it by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

MAX_IMAGE_TOKENS: Final = 4096
"""Of one image, unless said otherwise: files of published models allow four times as many."""


class VllmOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Set-up of the vllm engine beyond what all have. The product of the three sizes is the number of devices."""

    tensor_parallel: int = 1
    """Devices that share each layer (tp)."""
    pipeline_parallel: int = 1
    """Stages of layers (pp)."""
    data_parallel: int = 1
    """Copies of the model (dp)."""
    nodes: tuple[str, ...] = ()
    """Addresses of the machines, the serving one first; empty: this one alone."""
    node_rank: int = 0
    """Of this machine in ``nodes``."""
    node_port: int = 1120
    """Of the serving machine, at which the others join (multiNodesInferPort)."""
    speculative_tokens: int = 0
    """Tokens that the model's own head guesses at a time (plugin_params: mtp); 0: none."""
    max_loras: int = 0
    """Adapters that run at a time (maxLoras); 0: all."""
    max_lora_rank: int = 0
    """At least this much room for each (maxLoraRank); 0: what they need."""
    stall_timeout_s: float = 10.0
    """Without a step for so long, while requests run, the engine or a rank of it is taken for lost."""
    start_timeout_s: float = 3600.0
    """What has not started by then is ended."""
    restart: bool = True
    """A lost engine is started again, with back-off, a few times; else it stays failed."""
    allow_any_version: bool = False
    """Also a vLLM outside the range that was exercised."""


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Set-up of one engine. ``None`` means: take it from the model or the machine."""

    model_path: Path
    """A transformers folder, or one GGUF file; for the scripted engine a script file."""
    dtype: str = "auto"
    """One of auto (as quantised in the file, else bfloat16; on cards float16 where the model's config says so), int4,
    bfloat16, float16, float32."""
    device: str = "cpu"
    """As ``native.device.registry`` knows it: cpu, cuda, npu."""
    device_ids: list[int] = []
    """Logical number of each instance's device (npuDeviceIds); empty: 0, 1 and so on. The CPU has none."""
    graphs: bool = True
    """Decode steps are captured and replayed on devices that have graphs (npuGraph)."""
    num_instances: int = 1
    """Engine processes, each with its own copy of the model (MindIE: modelInstanceNumber)."""
    max_context: int | None = None
    """Prompt and output tokens together (maxSeqLen); capped by the model's own limit."""
    max_prompt_tokens: int | None = None
    """maxInputTokenLen; capped by ``max_context - 1``."""
    max_batch_size: int = 200
    """Sequences in one step (maxBatchSize)."""
    max_step_tokens: int = 2048
    """Token budget of one step (maxPrefillTokens): prompts longer than what is left of it are cut into chunks."""
    mixed_step_ms: float = 75.0
    """Time for a step that works on prompts beside sequences that decode: no more of the prompts is run than the
    measured speed allows, so that running answers do not pause for longer. Where decodes alone take long, it may
    take 2.2 times as long as they; longer still while many prompts wait. Prompts by themselves are not held back."""
    max_waiting: int = 1024
    """Requests that may wait; one more is refused with ``QueueFull``."""
    block_size: int = 128
    """Tokens per KV block (cacheBlockSize)."""
    kv_memory_gb: float | None = None
    """Memory for keys and values (npuMemSize; -1 there is ``None`` here)."""
    prefix_cache: bool = True
    deterministic: bool = False
    """The same request gives the same tokens and log-probabilities to the bit, whatever else runs: every result is
    computed in an order of its own row's."""
    media_cache_mb: int = 256
    """Memory for the embeddings of media, which their prompts need until they are computed and others may meet again;
    one item that is larger is held alone."""
    max_media_mb: int = 1024
    """Pixels and samples of all requests that run or wait."""
    max_media_items: int = 20
    """Of one request (maxMediaParts)."""
    max_image_tokens: int = MAX_IMAGE_TOKENS
    """Of one image, and of a frame of a video (maxImageTokens), where the model's files allow more."""
    max_video_tokens: int = 8192
    """Of one video (maxVideoTokens)."""
    media_positions: str = "extent"
    """Where text goes on behind a video, for models of the Qwen2-VL family: at the largest coordinate of the video
    ("extent"), as they were trained, or at its longer side ("side"), as transformers 5.24 counts."""
    num_threads: int | None = None
    """CPU threads for the compute; ``None``: all cores of the process."""
    heartbeat_timeout_s: float = 60.0
    """An engine process silent for this long is taken for hung and replaced."""
    adapters: dict[str, Path] = {}
    """Name and folder of each LoRA adapter in PEFT's format (LoraModules)."""
    trust_remote_code: bool = False
    runner: str = "mindserve_engine.native.runner:load_runner"
    """``module:function`` that loads the model in the native engine's process."""
    engine_args: dict[str, Any] = {}
    """Further arguments of the engine below, by its own names; they win over what the options above give. The vllm
    engine's are those of vLLM's EngineArgs (``tensor_parallel_size``, ``enforce_eager``, ...); other engines have
    none."""
    vllm: VllmOptions = VllmOptions()
    """Without effect on other engines."""
