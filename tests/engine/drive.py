"""Drives the native engine's loop in this process: scheduler, block pool and runner as they are, without ZeroMQ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch

from mindserve_engine.native.loop import EngineLoop
from mindserve_engine.native.runner import LoadedModel, load_runner
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import GenerationRequest, SamplingParams, SequenceEvent
from tests import tiny_models

GREEDY = SamplingParams(temperature=0.0)
CLOSEST = 1e-3
"""Between the two best logits of a step that counts."""


def load(path: Path, **options: Any) -> LoadedModel:
    """Float32 and small steps unless said otherwise."""
    settings = {"dtype": "float32", "max_batch_size": 16, "kv_memory_gb": 0.05, "num_threads": 1, **options}
    return load_runner(EngineOptions(model_path=path, **settings), lambda _what, _share: None)


class Driver:
    """Runs requests to their ends and keeps their tokens."""

    def __init__(self, loaded: LoadedModel, **options: Any) -> None:
        settings = EngineOptions(model_path=Path(), **{"max_batch_size": 16, **options})
        self.loop = EngineLoop(loaded.runner, loaded.info, settings)
        self.tokens: dict[str, list[int]] = {}
        self.num_cached: dict[str, int] = {}
        self.failures: dict[str, str] = {}
        self.events: dict[str, list[SequenceEvent]] = {}

    def add(
        self,
        request_id: str,
        prompt: list[int],
        num_tokens: int,
        sampling: SamplingParams = GREEDY,
        *,
        ignore_eos: bool = True,
        **fields: Any,
    ) -> None:
        """``fields``: others of ``GenerationRequest``."""
        request = GenerationRequest(
            request_id=request_id,
            prompt_token_ids=prompt,
            max_tokens=num_tokens,
            sampling=sampling,
            ignore_eos=ignore_eos,
            **fields,
        )
        self.tokens[request_id] = []
        self.events[request_id] = []
        self.loop.add(request, arrived=0.0)

    def step(self) -> None:
        for event in self.loop.step():
            self._keep(event)

    def run(self) -> dict[str, list[int]]:
        while self.loop.has_work:
            self.step()
        self.loop.check()
        return self.tokens

    def sequences(self, request_id: str) -> list[list[SequenceEvent]]:
        """The events of each sequence of a request."""
        events = self.events[request_id]
        return [
            [event for event in events if event.index == index] for index in sorted({event.index for event in events})
        ]

    def _keep(self, event: SequenceEvent) -> None:
        self.events[event.request_id].append(event)
        self.tokens[event.request_id] += event.token_ids
        self.num_cached[event.request_id] = event.num_cached_tokens
        if event.failure is not None:
            self.failures[event.request_id] = event.failure


@contextmanager
def small_pool(loaded: LoadedModel, num_blocks: int) -> Iterator[LoadedModel]:
    """The model with so few blocks, and no longer context than fits them."""
    runner, capacity = loaded.runner, num_blocks * loaded.runner.block_size
    all_blocks, runner.num_blocks = runner.num_blocks, num_blocks
    info = msgspec.structs.replace(loaded.info, max_context=min(loaded.info.max_context, capacity))
    try:
        yield LoadedModel(runner, info)
    finally:
        runner.num_blocks = all_blocks


def generate(loaded: LoadedModel, prompts: Sequence[list[int]], num_tokens: int, **options: Any) -> list[list[int]]:
    """Greedy continuations of ``prompts``, all submitted at once."""
    driver = Driver(loaded, **options)
    for number, prompt in enumerate(prompts):
        driver.add(str(number), prompt, num_tokens)
    tokens = driver.run()
    return [tokens[str(number)] for number in range(len(prompts))]


def reference(model: Any, prompts: Iterable[list[int]], num_tokens: int) -> list[list[int]]:
    """What transformers generates greedily from each prompt by itself.

    A continuation ends where its two best tokens are closer than float32 rounding: which of them wins says nothing."""
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    continuations = [_continuation(model, prompt, num_tokens) for prompt in prompts]
    num_decided = sum(len(tokens) for tokens in continuations)
    assert num_decided > 0.8 * num_tokens * len(continuations), "the reference is undecided too often"
    return continuations


def _continuation(model: Any, prompt: list[int], num_tokens: int) -> list[int]:
    ids = torch.tensor([prompt])
    output = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=num_tokens,
        output_logits=True,
        return_dict_in_generate=True,
    )
    best = torch.cat(output.logits).topk(2).values
    tied = torch.nonzero(best[:, 0] - best[:, 1] < CLOSEST)[:, 0].tolist()
    tokens: list[int] = output.sequences[0, len(prompt) :].tolist()
    return tokens[: tied[0]] if tied else tokens


def assert_continues(ours: list[list[int]], expected: list[list[int]]) -> None:
    """Each of ``ours`` equals what the reference is sure of."""
    assert [tokens[: len(sure)] for tokens, sure in zip(ours, expected, strict=True)] == expected


def random_prompts(lengths: Iterable[int], *, vocab_size: int, seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, vocab_size, (length,), generator=generator).tolist() for length in lengths]


def prompts_for(lengths: Iterable[int], seed: int = 0) -> list[list[int]]:
    """Of the tiny models' vocabulary."""
    return random_prompts(lengths, vocab_size=tiny_models.VOCAB_SIZE, seed=seed)
