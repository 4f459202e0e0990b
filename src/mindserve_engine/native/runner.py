"""The model on a device, one step at a time; and how it gets there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch

from mindserve_engine.interface import EngineError
from mindserve_engine.native.batch import Runner, Sampled, SampleRow, StepBatch
from mindserve_engine.native.device.base import Device, LayerCache
from mindserve_engine.native.device.cpu import CpuDevice
from mindserve_engine.native.device.cpu_build import load_library
from mindserve_engine.native.device.cpu_compiled import CompiledCpuDevice
from mindserve_engine.native.kv_memory import KvBudget, size_kv_cache
from mindserve_engine.native.media.encoding import Encoder
from mindserve_engine.native.models.base import Model
from mindserve_engine.native.models.facts import ModelFacts, read_facts
from mindserve_engine.native.models.load import load_model
from mindserve_engine.native.sampling.sampler import Sampler
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import Capability, EngineInfo, SamplingParams

Progress = Callable[[str, float], None]
"""Called with what is being done and how far it is, 0..1."""

_WEIGHTS_SHARE: Final = 0.9
"""Of the progress bar; reading the config comes before, the cache and the warm-up after."""
_WARM_UP_TOKENS: Final = 32
_DEFAULT_CONTEXT: Final = 4096
"""For models that know no limit of their own."""


_CAPABILITIES: Final = frozenset(
    {
        Capability.PARALLEL_SAMPLING,
        Capability.BEAM_SEARCH,
        Capability.LOGPROBS,
        Capability.LOGIT_BIAS,
        Capability.LORA,
        Capability.GRAMMAR,
    }
)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    runner: Runner
    info: EngineInfo


class NativeRunner:
    """Implements ``Runner``."""

    def __init__(
        self, model: Model, device: Device, caches: list[LayerCache], *, num_blocks: int, block_size: int
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.encoder: Encoder | None = model.encoder
        self._model = model
        self._device = device
        self._caches = caches
        self._sampler = Sampler()

    def run(self, batch: StepBatch) -> list[Sampled]:
        with torch.inference_mode():
            uploaded = self._device.upload(batch)
            if self._model.encoder is not None:
                uploaded.overlays = [self._model.encoder.overlay(overlay) for overlay in batch.overlays]
            logits = self._model.logits(uploaded, self._caches)
            return self._sampler.sample(logits, batch.samples)

    def copy_blocks(self, pairs: list[tuple[int, int]]) -> None:
        with torch.inference_mode():
            for cache in self._caches:
                self._device.copy_blocks(cache, pairs)

    def forget(self, sequence_id: int) -> None:
        self._sampler.forget(sequence_id)


def load_runner(options: EngineOptions, progress: Progress) -> LoadedModel:
    """Load the model and make its cache. Raises ``EngineError`` with one clear line."""
    progress("reading the model's config", 0.0)
    facts = read_facts(options.model_path, trust_remote_code=options.trust_remote_code)
    device = _create_device(options)
    device.check_block_size(options.block_size)
    with device.loading():
        return _load(facts, device, options, progress)


def _load(facts: ModelFacts, device: Device, options: EngineOptions, progress: Progress) -> LoadedModel:
    limit = facts.max_positions or options.max_context or _DEFAULT_CONTEXT
    max_positions = min(limit, options.max_context or limit)

    def loaded(share: float) -> None:
        progress("loading weights", share * _WEIGHTS_SHARE)

    with torch.inference_mode():
        model = load_model(facts, options, device, max_positions=max_positions, progress=loaded)
    token_bytes = sum(shape.token_bytes(model.cache_dtype) for shape in model.cache_shapes)
    free_bytes = device.memory().free - _media_bytes(facts, model, options)
    budget = size_kv_cache(options, token_bytes=token_bytes, model_limit=max_positions, free_bytes=max(0, free_bytes))
    runner = _create_runner(model, device, budget, options)
    progress("warming up", _WEIGHTS_SHARE)
    _warm_up(runner, budget.max_context)
    progress("ready", 1.0)
    return LoadedModel(runner=runner, info=_describe(facts, model, device, budget, options))


def _media_bytes(facts: ModelFacts, model: Model, options: EngineOptions) -> int:
    """What encoding the largest item takes, and the embeddings that are kept."""
    if facts.media is None or model.encoder is None:
        return 0
    patches = facts.media.patches
    num_patches = 0 if patches is None else facts.media.model.max_pixels // patches.size**2
    return model.encoder.peak_bytes(num_patches) + options.media_cache_mb * 2**20


def _create_device(options: EngineOptions) -> Device:
    if options.device != "cpu":
        raise EngineError(f"device: '{options.device}' is not known to the native engine; it runs on cpu")
    library = load_library()
    if library is not None:
        return CompiledCpuDevice(
            library,
            num_threads=options.num_threads,
            block_size=options.block_size,
            deterministic=options.deterministic,
        )
    if options.deterministic:
        raise EngineError("deterministic: needs a C++ compiler, whose kernels sum in a fixed order; torch's do not")
    return CpuDevice(num_threads=options.num_threads, block_size=options.block_size)


def _create_runner(model: Model, device: Device, budget: KvBudget, options: EngineOptions) -> NativeRunner:
    caches: list[LayerCache] = []
    for shape in model.cache_shapes:
        caches += device.kv_cache(
            num_layers=1,
            num_blocks=budget.num_blocks,
            block_size=options.block_size,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            dtype=model.cache_dtype,
        )
    return NativeRunner(model, device, caches, num_blocks=budget.num_blocks, block_size=options.block_size)


def _describe(facts: ModelFacts, model: Model, device: Device, budget: KvBudget, options: EngineOptions) -> EngineInfo:
    longest_prompt = max(1, budget.max_context - 1)
    return EngineInfo(
        model_type=facts.model_type,
        vocab_size=facts.config.vocab_size,
        max_context=budget.max_context,
        is_context_cut_by_memory=budget.is_cut,
        max_prompt_tokens=min(options.max_prompt_tokens or longest_prompt, longest_prompt),
        eos_token_ids=facts.eos_token_ids,
        default_top_k=facts.default_top_k,
        block_size=options.block_size,
        num_blocks=budget.num_blocks,
        device=device.name,
        weights=model.weights_name,
        capabilities=_CAPABILITIES if facts.media is None else _CAPABILITIES | {Capability.MEDIA},
        media=None if facts.media is None else facts.media.model,
        adapters=tuple(options.adapters),
        max_batch_size=min(options.max_batch_size, options.max_step_tokens),
    )


def _warm_up(runner: NativeRunner, max_context: int) -> None:
    """Run the kernels of every batch size class once, so that the first request does not pay for their set-up."""
    length = min(_WARM_UP_TOKENS, max_context - 1, runner.num_blocks * runner.block_size - 1)
    runner.run(_warm_up_batch(runner, num_tokens=max(1, length), num_sequences=1))
    for num_sequences in (1, 8, 32):
        runner.run(_warm_up_batch(runner, num_tokens=1, num_sequences=min(num_sequences, runner.num_blocks)))


def _warm_up_batch(runner: NativeRunner, *, num_tokens: int, num_sequences: int) -> StepBatch:
    batch = StepBatch()
    sampling = SamplingParams(temperature=1.0, top_k=50)
    for number in range(num_sequences):
        positions = range(num_tokens)
        blocks = [number + offset for offset in range(-(-num_tokens // runner.block_size))]
        batch.token_ids += [0] * num_tokens
        batch.positions += positions
        batch.slots += [blocks[p // runner.block_size] * runner.block_size + p % runner.block_size for p in positions]
        batch.query_ends.append(len(batch.token_ids))
        batch.kv_lengths.append(num_tokens)
        batch.block_tables.append(blocks)
        batch.samples.append(
            SampleRow(
                sequence_id=-1 - number,
                row=number,
                params=sampling,
                index=0,
                position=0,
                prompt_token_ids=[0],
                output_token_ids=[],
            )
        )
    return batch
