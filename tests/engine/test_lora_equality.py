"""Requests with LoRA adapters give what transformers generates from the merged models, several in one batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mindserve_engine.types import SamplingParams
from tests import tiny_adapters, tiny_models
from tests.engine import drive
from tests.engine.conftest import Pair
from tests.engine.drive import Driver, assert_continues, random_prompts, reference

NUM_TOKENS = 16
ADAPTERS: dict[str, dict[str, Any]] = {
    "all": {},
    "few": {"target_modules": ["v_proj", "down_proj"], "r": 2},
    "scaled": {"use_rslora": True, "rank_pattern": {"q_proj": 7}, "alpha_pattern": {"up_proj": 3}},
}


@pytest.fixture(scope="module", params=["llama", "qwen2", "qwen3", "gemma2"])
def adapted(
    request: pytest.FixtureRequest, tiny_pair: Callable[[str], Pair], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, dict[str | None, Any]]:
    """Our model with three adapters, and their references by name; ``None`` is the base model."""
    pair = tiny_pair(request.param)
    folders: dict[str, Path] = {name: tmp_path_factory.mktemp(name) for name in ADAPTERS}
    references: dict[str | None, Any] = {None: pair.theirs}
    for seed, (name, settings) in enumerate(ADAPTERS.items()):
        references[name] = tiny_adapters.write(pair.path, folders[name], seed=seed, **settings)
    return drive.load(pair.path, block_size=16, adapters=folders), references


def test_several_adapters_in_one_batch(adapted: tuple[Any, dict[str | None, Any]]) -> None:
    ours, references = adapted
    assert ours.info.adapters == tuple(ADAPTERS)
    prompts = random_prompts((5, 33, 1, 70), vocab_size=tiny_models.VOCAB_SIZE, seed=31)
    driver = Driver(ours, max_step_tokens=48)
    for name in references:
        for number, prompt in enumerate(prompts):
            driver.add(f"{name} {number}", prompt, NUM_TOKENS, adapter=name)
    tokens = driver.run()
    outputs = []
    for name, model in references.items():
        found = [tokens[f"{name} {number}"] for number in range(len(prompts))]
        assert_continues(found, reference(model, prompts, NUM_TOKENS))
        outputs.append(found)
    assert all(one != other for one in outputs for other in outputs if one is not other)


def test_prefix_cache_never_shares_blocks_across_adapters(adapted: tuple[Any, dict[str | None, Any]]) -> None:
    ours, references = adapted
    prompts = random_prompts((65, 70, 75), vocab_size=tiny_models.VOCAB_SIZE, seed=32)
    driver = Driver(ours)
    for round_ in ("cold", "warm"):
        for name, model in references.items():
            requests = [f"{name} {round_} {number}" for number in range(len(prompts))]
            for request_id, prompt in zip(requests, prompts, strict=True):
                driver.add(request_id, prompt, NUM_TOKENS, adapter=name)
            tokens = driver.run()
            assert {driver.num_cached[request_id] for request_id in requests} == {64 if round_ == "warm" else 0}
            assert_continues([tokens[request_id] for request_id in requests], reference(model, prompts, NUM_TOKENS))


def test_adapters_with_forks_and_beams(adapted: tuple[Any, dict[str | None, Any]]) -> None:
    """Sequences that are forked keep their adapter."""
    ours, _ = adapted
    prompt = random_prompts((20,), vocab_size=tiny_models.VOCAB_SIZE, seed=33)[0]
    hot = SamplingParams(temperature=1.0, seed=5)

    def run(*names: str | None) -> dict[str | None, list[list[int]]]:
        driver = Driver(ours)
        for name in names:
            driver.add(f"n {name}", prompt, 8, hot, num_sequences=3, adapter=name)
            driver.add(f"beam {name}", prompt, 8, beam_width=3, num_sequences=2, adapter=name)
        driver.run()
        kinds = ("n", "beam")
        return {
            name: [
                [token for event in events for token in event.token_ids]
                for kind in kinds
                for events in driver.sequences(f"{kind} {name}")
            ]
            for name in names
        }

    together = run(None, *ADAPTERS)
    for name in (None, *ADAPTERS):
        assert run(name)[name] == together[name]
    assert together[None] != together["all"]
