"""Beam search in float32 gives transformers' tokens and scores, alone and beside other requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from mindserve_engine.types import FinishReason, SamplingParams
from tests import tiny_models
from tests.engine.beam_reference import beams
from tests.engine.conftest import Pair
from tests.engine.drive import Driver, prompts_for, random_prompts

PairOf = Callable[[str], Pair]
NUM_TOKENS = 14
PLAIN = SamplingParams(temperature=0.0)


def beam_reference(
    model: Any, prompt: list[int], width: int, *, eos: list[int] | None = None, **settings: Any
) -> list[tuple[list[int], float]]:
    """All hypotheses of transformers' search with their scores, best first."""
    num_tokens = settings.pop("num_tokens", NUM_TOKENS)
    return beams(model, prompt, width, eos=eos, pad=tiny_models.VOCAB_SIZE - 1, num_tokens=num_tokens, **settings)


def assert_found(driver: Driver, request_id: str, expected: list[tuple[list[int], float]]) -> None:
    events = driver.events[request_id]
    assert [event.index for event in events] == list(range(len(expected)))
    assert [event.beam_score for event in events] == pytest.approx([score for _, score in expected], abs=1e-4)
    assert [event.token_ids for event in events] == [tokens for tokens, _ in expected]


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "gemma2"])
def test_beams_beside_each_other_and_beside_sampling(tiny_pair: PairOf, name: str) -> None:
    pair = tiny_pair(name)
    driver = Driver(pair.ours)
    prompts = prompts_for((1, 15, 33, 70), seed=11)
    widths = (4, 2, 5, 3)
    for number, (prompt, width) in enumerate(zip(prompts, widths, strict=True)):
        driver.add(str(number), prompt, NUM_TOKENS, PLAIN, beam_width=width, num_sequences=width)
    driver.add("greedy", prompts[1], NUM_TOKENS)
    driver.add("sampled", prompts[2], NUM_TOKENS, SamplingParams(seed=5))
    driver.run()
    for number, (prompt, width) in enumerate(zip(prompts, widths, strict=True)):
        assert_found(driver, str(number), beam_reference(pair.theirs, prompt, width))


@pytest.mark.parametrize("name", ["llama", "qwen3"])
@pytest.mark.parametrize("num_eos", [1, 3])
def test_hypotheses_that_end(tiny_pair: PairOf, name: str, num_eos: int) -> None:
    """Tokens that the beams like are made ends of sequence, so that hypotheses finish at different lengths."""
    pair = tiny_pair(name)
    prompt = prompts_for((9,), seed=12)[0]
    eos, expected = _ends_that_matter(pair, prompt, num_eos)
    driver = Driver(pair.ours)
    driver.loop._info = msgspec.structs.replace(driver.loop._info, eos_token_ids=tuple(eos))
    driver.add("r", prompt, NUM_TOKENS, PLAIN, ignore_eos=False, beam_width=4, num_sequences=4)
    driver.run()
    assert_found(driver, "r", expected)
    reasons = [FinishReason.EOS if tokens[-1] in eos else FinishReason.LENGTH for tokens, _ in expected]
    assert [event.finish_reason for event in driver.events["r"]] == reasons


def _ends_that_matter(pair: Pair, prompt: list[int], num_eos: int) -> tuple[list[int], list[tuple[list[int], float]]]:
    """Ends of sequence with which hypotheses of different lengths are among the best, and these hypotheses."""
    liked = sorted({token for tokens, _ in beam_reference(pair.theirs, prompt, 4) for token in tokens})
    for start in range(len(liked)):
        eos = liked[start : start + num_eos]
        expected = beam_reference(pair.theirs, prompt, 4, eos=eos)
        if len({len(tokens) for tokens, _ in expected}) > 1:
            return eos, expected
    raise AssertionError("no ends of sequence change anything")


def test_repetition_penalty_counts_as_in_transformers(tiny_pair: PairOf) -> None:
    pair = tiny_pair("qwen2")
    prompt = prompts_for((21,), seed=13)[0]
    driver = Driver(pair.ours)
    sampling = SamplingParams(temperature=0.0, repetition_penalty=1.3)
    driver.add("r", prompt, NUM_TOKENS, sampling, beam_width=3, num_sequences=3)
    driver.run()
    assert_found(driver, "r", beam_reference(pair.theirs, prompt, 3, repetition_penalty=1.3))


def test_chunked_cached_and_preempted(tiny_pair: PairOf) -> None:
    pair = tiny_pair("llama")
    prompt = prompts_for((75,), seed=14)[0]
    expected = beam_reference(pair.theirs, prompt, 4)
    runner = pair.ours.runner
    all_blocks, runner.num_blocks = runner.num_blocks, 32
    try:
        driver = Driver(pair.ours, max_step_tokens=17)
        for name in ("cold", "warm"):
            driver.add("old " + name, prompts_for((260,), seed=15)[0], 70)
            driver.add(name, prompt, NUM_TOKENS, PLAIN, beam_width=4, num_sequences=4)
            driver.add("old too " + name, prompts_for((90,), seed=16)[0], 40)
            driver.run()
    finally:
        runner.num_blocks = all_blocks
    assert driver.loop.stats().num_preemptions_total > 0
    for name in ("cold", "warm"):
        assert_found(driver, name, expected)


def test_default_model(default_pair: Pair) -> None:
    prompt = random_prompts((25,), vocab_size=default_pair.ours.info.vocab_size, seed=17)[0]
    driver = Driver(default_pair.ours)
    driver.add("r", prompt, 8, PLAIN, beam_width=3, num_sequences=2)
    driver.run()
    expected = beam_reference(default_pair.theirs, prompt, 3, num_tokens=8)
    assert_found(driver, "r", expected[:2])
