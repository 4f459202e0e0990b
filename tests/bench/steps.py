"""What a step of the engine costs with the default model, against the batch and against the context.

The loop runs in this process; prompts are random tokens, so that no step shares anything with another.
"""

from __future__ import annotations

import itertools
import os
import random
import statistics
import time
from typing import Final

import msgspec

from mindserve.config.packaged import SMOLLM2
from mindserve_engine.native.batch import Sampled, StepBatch
from mindserve_engine.native.loop import EngineLoop
from mindserve_engine.native.media.encoding import Encoder
from mindserve_engine.native.runner import LoadedModel, NativeRunner, load_runner
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import GenerationRequest
from mindserve_engine.user_cache import cache_folder

BATCHES: Final = (1, 2, 4, 8, 16, 32, 64)
CONTEXTS: Final = (128, 512, 1024, 2048, 4096)
CONTEXT_BATCHES: Final = ((1, CONTEXTS), (4, CONTEXTS[:-1]))
"""Numbers of sequences at which contexts are compared, and which: prompts of a batch take minutes."""
SHORT: Final = 160
"""Context at which batches are compared."""
STEPS: Final = 24
WARM_STEPS: Final = 2
_NUMBERS: Final = itertools.count()


class StepCost(msgspec.Struct, frozen=True):
    """Of decodes alone, medians over the steps."""

    batch: int
    context: int
    step_ms: float
    beside_ms: float
    """Of ``step_ms``, what is not the model: scheduling, sampling's bookkeeping, events."""
    kv_mb: float
    """Keys and values of the batch."""


class PrefillCost(msgspec.Struct, frozen=True):
    tokens: int
    tokens_per_s: float


class Timed:
    """A runner that notes how long the model took."""

    def __init__(self, inner: NativeRunner) -> None:
        self.inner = inner
        self.num_blocks = inner.num_blocks
        self.block_size = inner.block_size
        self.encoder: Encoder | None = None
        self.copy_blocks = inner.copy_blocks
        self.forget = inner.forget
        self.seconds = 0.0

    def run(self, batch: StepBatch) -> list[Sampled]:
        began = time.perf_counter()
        sampled = self.inner.run(batch)
        self.seconds = time.perf_counter() - began
        return sampled


def options(*, deterministic: bool = False) -> EngineOptions:
    return EngineOptions(
        model_path=cache_folder(os.environ) / SMOLLM2.file_name, prefix_cache=False, deterministic=deterministic
    )


def load(chosen: EngineOptions) -> LoadedModel:
    return load_runner(chosen, lambda what, share: None)


def _loop(loaded: LoadedModel, chosen: EngineOptions) -> tuple[EngineLoop, Timed]:
    assert isinstance(loaded.runner, NativeRunner)
    timed = Timed(loaded.runner)
    return EngineLoop(timed, loaded.info, chosen), timed


def decode_cost(loaded: LoadedModel, chosen: EngineOptions, *, batch: int, context: int) -> StepCost:
    """``context``: tokens of each sequence when the measured steps begin."""
    loop, timed = _loop(loaded, chosen)
    chance = random.Random(batch * 10_000 + context)
    requests = [_request(loaded, chance, context, max_tokens=STEPS + 256) for _ in range(batch)]
    for request in requests:
        loop.add(request, time.monotonic())
    while sum(bool(event.token_ids) for event in loop.step()) < batch:  # until all decode
        pass
    for _ in range(WARM_STEPS):
        loop.step()
    whole, model = [], []
    for _ in range(STEPS):
        began = time.perf_counter()
        loop.step()
        whole.append(time.perf_counter() - began)
        model.append(timed.seconds)
    stats = loop.stats()
    used = (stats.num_blocks - stats.num_free_blocks) / stats.num_blocks
    for request in requests:
        loop.abort(request.request_id)
    step_s = statistics.median(whole)
    beside_s = statistics.median(one - other for one, other in zip(whole, model, strict=True))
    return StepCost(batch, context, step_s * 1e3, beside_s * 1e3, used * _cache_mb(timed.inner))


def _request(loaded: LoadedModel, chance: random.Random, tokens: int, *, max_tokens: int) -> GenerationRequest:
    prompt = [chance.randrange(1000, loaded.info.vocab_size) for _ in range(tokens)]
    return GenerationRequest(
        request_id=str(next(_NUMBERS)), prompt_token_ids=prompt, max_tokens=max_tokens, ignore_eos=True
    )


def _cache_mb(runner: NativeRunner) -> float:
    num_bytes: int = sum(cache.nbytes for cache in runner._caches)
    return num_bytes / 1e6


def prefill_cost(loaded: LoadedModel, chosen: EngineOptions, tokens: int) -> PrefillCost:
    loop, _ = _loop(loaded, chosen)
    loop.add(_request(loaded, random.Random(tokens), tokens, max_tokens=1), time.monotonic())
    began = time.perf_counter()
    while loop.has_work:
        loop.step()
    return PrefillCost(tokens, tokens / (time.perf_counter() - began))
