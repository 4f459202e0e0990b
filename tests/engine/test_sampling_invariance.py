"""In float32 the same seed gives the same output: alone, beside others, in chunks, after a preemption."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from mindserve_engine.types import SEED_MAX, SamplingParams
from tests import tiny_models
from tests.engine.conftest import Pair
from tests.engine.drive import Driver, random_prompts, small_pool

PARAMS: list[dict[str, Any]] = [
    {"seed": 1},
    {"seed": SEED_MAX, "temperature": 0.7, "top_k": 20},
    {"seed": 3, "top_p": 0.6, "repetition_penalty": 1.3},
    {"seed": 4, "temperature": 2.0, "top_k": 1000, "top_p": 0.9, "frequency_penalty": 0.8, "presence_penalty": -0.5},
    {"temperature": 0.0, "repetition_penalty": 1.2},
]
NUM_TOKENS = 40


def requests(seed: int = 0) -> list[tuple[list[int], SamplingParams]]:
    prompts = random_prompts((3, 40, 17, 64, 90), vocab_size=tiny_models.VOCAB_SIZE, seed=seed)
    return [(prompt, SamplingParams(**params)) for prompt, params in zip(prompts, PARAMS, strict=True)]


def together(pair: Pair, **options: Any) -> tuple[Driver, list[list[int]]]:
    driver = Driver(pair.ours, **options)
    for number, (prompt, sampling) in enumerate(requests()):
        driver.add(str(number), prompt, NUM_TOKENS, sampling)
    tokens = driver.run()
    return driver, [tokens[str(number)] for number in range(len(PARAMS))]


@pytest.fixture(scope="module")
def pair(tiny_pair: Callable[[str], Pair]) -> Pair:
    return tiny_pair("llama")


@pytest.fixture(scope="module")
def alone(pair: Pair) -> list[list[int]]:
    """Each request with the engine to itself."""
    outputs = []
    for prompt, sampling in requests():
        driver = Driver(pair.ours)
        driver.add("only", prompt, NUM_TOKENS, sampling)
        outputs.append(driver.run()["only"])
    return outputs


def test_beside_others(pair: Pair, alone: list[list[int]]) -> None:
    assert together(pair)[1] == alone


def test_in_chunks(pair: Pair, alone: list[list[int]]) -> None:
    assert together(pair, max_step_tokens=11)[1] == alone


def test_after_preemption(pair: Pair, alone: list[list[int]]) -> None:
    """Penalties and random numbers go on where they were."""
    with small_pool(pair.ours, 32) as small:
        driver = Driver(small, prefix_cache=False)
        for copy in range(3):
            for number, (prompt, sampling) in enumerate(requests()):
                driver.add(f"{number}/{copy}", prompt, NUM_TOKENS, sampling)
        tokens = driver.run()
    assert driver.loop.stats().num_preemptions_total > 0
    for copy in range(3):
        assert [tokens[f"{number}/{copy}"] for number in range(len(PARAMS))] == alone


def test_seeds_differ(pair: Pair) -> None:
    driver = Driver(pair.ours)
    for seed in range(8):
        driver.add(str(seed), [1, 2, 3], 12, SamplingParams(seed=seed, temperature=2.0))
    assert len({tuple(tokens) for tokens in driver.run().values()}) == 8


def test_a_sequence_with_broken_numbers_fails_alone(tiny_pair: Callable[[str], Pair]) -> None:
    """NaN in one sequence's keys and values reaches neither its neighbours nor the next owners of its blocks."""
    runner = tiny_pair("llama-untied-biased").ours.runner
    embedding, broken_token = runner._model._embedding, 299  # type: ignore[attr-defined]
    all_blocks, runner.num_blocks = runner.num_blocks, 32

    def healthy_outputs(broken: list[int] | None) -> list[list[int]]:
        driver = Driver(tiny_pair("llama-untied-biased").ours, prefix_cache=False)
        if broken is not None:
            driver.add("broken", broken, NUM_TOKENS)
        for number in range(3):
            driver.add(str(number), list(range(number, 20 * number + 10)), NUM_TOKENS)
        tokens = driver.run()
        assert ("broken" in driver.failures) == (broken is not None)
        return [tokens[str(number)] for number in range(3)]

    try:
        expected = healthy_outputs(None)
        with torch.inference_mode():
            embedding[broken_token] = float("nan")
        assert healthy_outputs([*range(200), broken_token, 5]) == expected
        assert healthy_outputs(None) == expected
    finally:
        runner.num_blocks = all_blocks
        with torch.inference_mode():
            embedding[broken_token] = 0.0


def test_sequences_of_one_request(pair: Pair) -> None:
    """Each has a random stream of its own, whatever it shares its prefill and its steps with."""

    def run(*, beside: bool, num_sequences: int, **options: Any) -> list[list[int]]:
        driver = Driver(pair.ours, **options)
        for number, (prompt, sampling) in enumerate(requests() if beside else []):
            driver.add(f"other {number}", prompt, NUM_TOKENS, sampling, num_sequences=2)
        prompt = random_prompts((50,), vocab_size=tiny_models.VOCAB_SIZE, seed=3)[0]
        sampling = SamplingParams(seed=9, temperature=1.2, top_k=50, repetition_penalty=1.1)
        driver.add("r", prompt, NUM_TOKENS, sampling, num_sequences=num_sequences)
        driver.run()
        return [[token for event in events for token in event.token_ids] for events in driver.sequences("r")]

    alone = run(beside=False, num_sequences=4)
    assert len({tuple(tokens) for tokens in alone}) == 4
    assert run(beside=True, num_sequences=4) == alone
    assert run(beside=True, num_sequences=4, max_batch_size=3, max_step_tokens=20) == alone
    assert run(beside=False, num_sequences=2) == alone[:2]
    assert run(beside=False, num_sequences=1) == alone[:1]
