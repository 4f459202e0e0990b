"""The model on a device, one step at a time; and how it gets there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import torch
from torch import Tensor

from mindserve_engine.native.batch import Runner, Sampled, StepBatch
from mindserve_engine.native.cache_trial import CacheTrial, create_caches, token_bytes
from mindserve_engine.native.device.base import Device, DeviceBatch, LayerCache
from mindserve_engine.native.device.graphs import DecodeGraphs, batch_sizes, num_scratch_blocks
from mindserve_engine.native.device.registry import create_device, hide_packages_of_others
from mindserve_engine.native.kv_memory import CacheRoom, KvBudget, size_kv_cache
from mindserve_engine.native.media.encoding import Encoder
from mindserve_engine.native.models.base import Model
from mindserve_engine.native.models.facts import ModelFacts, read_facts
from mindserve_engine.native.models.load import load_model
from mindserve_engine.native.sampling.sampler import Sampler
from mindserve_engine.native.trial import check_batches, num_checked_rows, trial_batch, written_blocks
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import Capability, EngineInfo

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

    def __init__(self, model: Model, device: Device, caches: list[LayerCache], *, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = device.block_size
        self.encoder: Encoder | None = model.encoder
        self.graphs: DecodeGraphs | None = None
        self.dtype = model.dtype
        self._model = model
        self._device = device
        self._caches = caches
        self._sampler = Sampler(device.sum_dtype, device.host_buffer)

    def run(self, batch: StepBatch) -> list[Sampled]:
        with torch.inference_mode():
            logits = None if self.graphs is None else self.graphs.logits(batch)
            if logits is None:
                logits = self._eager(batch)
            sampled = self._sampler.sample(logits, batch.samples)
        if self.graphs is not None and sampled:
            self.graphs.settle()
        return sampled

    def _eager(self, batch: StepBatch) -> Tensor:
        uploaded = self._device.upload(batch)
        if self._model.encoder is not None:
            uploaded.overlays = [self._model.encoder.overlay(overlay) for overlay in batch.overlays]
        return self.forward(uploaded)

    def forward(self, uploaded: DeviceBatch) -> Tensor:
        """[S, vocabulary] logits."""
        return self._model.logits(uploaded, self._caches)

    def copy_blocks(self, pairs: list[tuple[int, int]]) -> None:
        with torch.inference_mode():
            self._device.copy_blocks(self._caches, pairs)

    def forget(self, sequence_id: int) -> None:
        self._sampler.forget(sequence_id)


def load_runner(options: EngineOptions, progress: Progress) -> LoadedModel:
    """Load the model and make its cache. Raises ``EngineError`` with one clear line."""
    progress("reading the model's config", 0.0)
    hide_packages_of_others(options)
    facts = read_facts(
        options.model_path,
        trust_remote_code=options.trust_remote_code,
        max_image_tokens=options.max_image_tokens,
    )
    device = create_device(options)
    with device.loading():
        return _load(facts, device, options, progress)


def _load(facts: ModelFacts, device: Device, options: EngineOptions, progress: Progress) -> LoadedModel:
    limit = facts.max_positions or options.max_context or _DEFAULT_CONTEXT
    max_positions = min(limit, options.max_context or limit)

    def loaded(share: float) -> None:
        progress("loading weights", share * _WEIGHTS_SHARE)

    with torch.inference_mode():
        model = load_model(facts, options, device, max_positions=max_positions, progress=loaded)
    max_batch_size = min(options.max_batch_size, options.max_step_tokens)
    is_graphed = device.graphs is not None and options.graphs and model.has_fixed_steps
    graphed = max_batch_size if is_graphed else 0
    num_scratch = num_scratch_blocks(graphed, device.block_size)
    room = _cache_room(facts, model, device, options, max_positions, graphed)
    budget = size_kv_cache(
        options, room, token_bytes=token_bytes(model), model_limit=max_positions, block_size=device.block_size
    )
    caches = create_caches(model, device, budget.num_blocks + num_scratch)
    runner = NativeRunner(model, device, caches, num_blocks=budget.num_blocks)
    progress("warming up", _WEIGHTS_SHARE)
    _warm_up(runner, budget.max_context, facts.config.vocab_size)
    if graphed:
        _capture(runner, device, budget, options, graphed, facts.config.vocab_size)
    progress("ready", 1.0)
    return LoadedModel(runner=runner, info=_describe(facts, model, device, budget, options))


def _cache_room(
    facts: ModelFacts, model: Model, device: Device, options: EngineOptions, max_positions: int, graphed: int
) -> CacheRoom:
    """What the device has for the blocks of requests."""
    trial = CacheTrial(
        model,
        device,
        options,
        lambda caches, num_blocks: NativeRunner(model, device, caches, num_blocks=num_blocks),
        max_positions=max_positions,
        vocab_size=facts.config.vocab_size,
        num_graphed=graphed,
    )
    room = device.cache_room(trial.widest_steps, trial.captured)
    return replace(room, free_bytes=max(0, room.free_bytes - _media_bytes(facts, model, options)))


def _media_bytes(facts: ModelFacts, model: Model, options: EngineOptions) -> int:
    """What encoding the largest item takes, and the embeddings that are kept."""
    if facts.media is None or model.encoder is None:
        return 0
    patches = facts.media.patches
    num_patches = 0 if patches is None else facts.media.model.max_pixels // patches.size**2
    return model.encoder.peak_bytes(num_patches) + options.media_cache_mb * 2**20


def _capture(
    runner: NativeRunner, device: Device, budget: KvBudget, options: EngineOptions, largest: int, vocab_size: int
) -> None:
    """Graphs for decode batches up to ``largest``, checked against the same work run operator by operator.

    Raises ``EngineError`` when they are wrong."""
    assert device.graphs is not None
    table_width = -(-budget.max_context // device.block_size)
    graphs = DecodeGraphs(
        device,
        device.graphs,
        runner.forward,
        table_width=table_width,
        scratch_block=budget.num_blocks,
        num_blocks=budget.num_blocks + num_scratch_blocks(largest, device.block_size),
    )
    shape = {"num_blocks": budget.num_blocks, "block_size": device.block_size, "vocab_size": vocab_size}
    num_tokens = min(device.block_size, options.max_step_tokens, budget.max_context)
    with torch.inference_mode():
        graphs.capture(batch_sizes(min(largest, budget.num_blocks)))  # each row needs a block to write into
        for batch in written_blocks(num_tokens=num_tokens, **shape):
            runner.forward(device.upload(batch))
        for size in graphs.sizes:
            rows = num_checked_rows(size, budget.num_blocks)
            for batch in check_batches(num_rows=rows, num_padding=size - rows, max_context=budget.max_context, **shape):
                graphs.check(batch, size, runner.dtype)
    runner.graphs = graphs


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
        block_size=device.block_size,
        num_blocks=budget.num_blocks,
        device=device.name,
        weights=model.weights_name,
        capabilities=_CAPABILITIES if facts.media is None else _CAPABILITIES | {Capability.MEDIA},
        media=None if facts.media is None else facts.media.model,
        adapters=tuple(options.adapters),
        max_batch_size=min(options.max_batch_size, options.max_step_tokens),
    )


def _warm_up(runner: NativeRunner, max_context: int, vocab_size: int) -> None:
    """Run the kernels of every batch size class once, so that the first request does not pay for their set-up."""
    prompts = partial(trial_batch, block_size=runner.block_size, vocab_size=vocab_size)
    length = min(_WARM_UP_TOKENS, max_context - 1, runner.num_blocks * runner.block_size - 1)
    runner.run(prompts([max(1, length)]))
    for num_sequences in (1, 8, 32):
        runner.run(prompts([1] * min(num_sequences, runner.num_blocks)))
