"""Requests that the whole engine serves alike on every device: what an emulated or a real one is held against the CPU
with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from mindserve_engine.native.runner import LoadedModel
from mindserve_engine.types import SamplingParams, Vocabulary
from tests.engine.drive import Driver, prompts_for, small_pool

SETTINGS: Final = {"max_step_tokens": 256, "max_batch_size": 6}
SAMPLED: Final = {
    "all": {},
    "top-k": {"top_k": 7},
    "top-p": {"top_p": 0.9},
    "both": {"top_k": 30, "top_p": 0.5, "temperature": 1.5},
    "penalties": {"repetition_penalty": 1.4, "presence_penalty": 0.5, "frequency_penalty": 0.3},
    "bias": {"logit_bias": ((5, 4.0), (9, -100.0))},
}
Scenario = Callable[[Driver], None]


def both_run(pair: tuple[LoadedModel, LoadedModel], scenario: Scenario) -> list[Driver]:
    """The same requests on the CPU and on the device; what comes of them is equal."""
    drivers = [Driver(loaded, **SETTINGS) for loaded in pair]
    for driver in drivers:
        scenario(driver)
        driver.run()
        assert not driver.failures
    on_cpu, on_device = drivers
    assert on_device.tokens == on_cpu.tokens
    assert on_device.num_cached == on_cpu.num_cached
    return drivers


def mixed(driver: Driver) -> None:
    """Short and long prompts that come while others decode: prefill, chunks with history, decode rows in one step."""
    for number, prompt in enumerate(prompts_for((3, 140, 300, 60))):
        driver.add(str(number), prompt, 12)
        driver.step()
        driver.step()


def prefix_hit(pair: tuple[LoadedModel, LoadedModel]) -> None:
    start, rest = prompts_for((256, 40))

    def scenario(driver: Driver) -> None:
        driver.add("first", start + rest[:9], 3)
        driver.run()
        driver.add("second", start + rest, 8)

    _, on_device = both_run(pair, scenario)
    assert on_device.num_cached["second"] == 256


def preemption(pair: tuple[LoadedModel, LoadedModel], num_blocks: int, *lengths: int) -> None:
    """``num_blocks`` are too few for all three."""
    with small_pool(pair[0], num_blocks) as small_cpu, small_pool(pair[1], num_blocks) as small_device:

        def scenario(driver: Driver) -> None:
            for number, prompt in enumerate(prompts_for(lengths)):
                driver.add(str(number), prompt, 30)

        drivers = both_run((small_cpu, small_device), scenario)
    assert all(driver.loop.stats().num_preemptions_total for driver in drivers)


def forks(pair: tuple[LoadedModel, LoadedModel]) -> None:
    """Sequences share blocks, and copy those that they write to."""
    [prompt] = prompts_for((150,))

    def scenario(driver: Driver) -> None:
        driver.add("forks", prompt, 10, SamplingParams(temperature=0.8, top_k=20, seed=5), num_sequences=3)

    _, on_device = both_run(pair, scenario)
    told = {tuple(token for event in one for token in event.token_ids) for one in on_device.sequences("forks")}
    assert len(told) == 3


def beams(driver: Driver) -> None:
    [prompt] = prompts_for((40,))
    driver.add("beams", prompt, 6, num_sequences=2, beam_width=3)


def sampling_side_by_side(pair: tuple[LoadedModel, LoadedModel]) -> None:
    """Each in a batch with the others; and log-probabilities of some."""

    def scenario(driver: Driver) -> None:
        prompts = prompts_for([20] * len(SAMPLED))
        for seed, ((name, params), prompt) in enumerate(zip(SAMPLED.items(), prompts, strict=True)):
            sampling = SamplingParams(**{"temperature": 1.0, "seed": seed, **params})
            driver.add(name, prompt, 15, sampling, num_logprobs=3 if "top" in name else None)

    on_cpu, on_device = both_run(pair, scenario)
    for event, other in zip(on_device.events["top-k"], on_cpu.events["top-k"], strict=True):
        assert event.logprobs[0].logprob == pytest.approx(other.logprobs[0].logprob, abs=1e-4)
        assert event.logprobs[0].top_token_ids == other.logprobs[0].top_token_ids


def grammar_beside_a_free_row(pair: tuple[LoadedModel, LoadedModel], vocabulary: Vocabulary) -> None:
    def scenario(driver: Driver) -> None:
        driver.loop.learn(vocabulary)
        sampling = SamplingParams(temperature=2.0, seed=3)
        driver.add("bound", [5, 6, 7], 12, sampling, grammar="start: /[a-z]{40}/")
        driver.add("free", [5, 6, 7], 12, sampling)

    _, on_device = both_run(pair, scenario)
    text = b"".join(vocabulary.token_bytes[token] for token in on_device.tokens["bound"]).decode()
    assert text.isalpha()
    assert text.islower()


def adapters(driver: Driver) -> None:
    """One is loaded under the name ``a``."""
    short, long = prompts_for((30, 140))
    driver.add("plain", short, 8)
    driver.add("adapted", short, 8, adapter="a")
    driver.add("long", long, 8, adapter="a")
