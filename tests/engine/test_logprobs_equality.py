"""Reported log-probabilities are those of transformers' logits, within 1e-4 in float32; of beams too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from mindserve_engine.types import SamplingParams, SequenceEvent
from tests import tiny_models
from tests.engine.conftest import Pair
from tests.engine.drive import Driver, random_prompts

PairOf = Callable[[str], Pair]
HOT = SamplingParams(
    temperature=1.7, top_k=40, top_p=0.9, seed=3, repetition_penalty=1.4, presence_penalty=0.5, frequency_penalty=0.2
)


def assert_equal_to_transformers(pair: Pair, prompt: list[int], events: list[SequenceEvent], num_top: int) -> None:
    """Compare each position."""
    tokens = [token for event in events for token in event.token_ids]
    entries = [entry for event in events for entry in event.logprobs]
    assert len(entries) == len(tokens)
    with torch.inference_mode():
        logits = pair.theirs(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
    expected = torch.log_softmax(logits.float(), dim=-1)
    taken = expected[torch.arange(len(tokens)), torch.tensor(tokens)]
    assert [entry.logprob for entry in entries] == pytest.approx(taken.tolist(), abs=1e-4)
    top = expected.topk(num_top, dim=-1).values.tolist() if num_top else [[]] * len(tokens)
    for position, (entry, values) in enumerate(zip(entries, top, strict=True)):
        assert entry.top_logprobs == pytest.approx(values, abs=1e-4)
        found = expected[position, entry.top_token_ids].tolist()
        assert found == pytest.approx(entry.top_logprobs, abs=1e-4)
        assert len(set(entry.top_token_ids)) == num_top


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2"])
def test_before_penalties_temperature_and_truncation(tiny_pair: PairOf, name: str) -> None:
    pair = tiny_pair(name)
    prompts = random_prompts((3, 40, 17), vocab_size=tiny_models.VOCAB_SIZE, seed=21)
    nums = (20, 0, 5)
    driver = Driver(pair.ours, max_step_tokens=32)
    for number, (prompt, num) in enumerate(zip(prompts, nums, strict=True)):
        driver.add(str(number), prompt, 12, HOT, num_logprobs=num)
    driver.add("silent", prompts[0], 12, HOT)
    driver.run()
    for number, (prompt, num) in enumerate(zip(prompts, nums, strict=True)):
        assert_equal_to_transformers(pair, prompt, driver.events[str(number)], num)
    assert all(event.logprobs == [] for event in driver.events["silent"])
    assert driver.tokens["silent"] == driver.tokens["0"]


def test_several_sequences(tiny_pair: PairOf) -> None:
    pair = tiny_pair("qwen2")
    prompt = random_prompts((19,), vocab_size=tiny_models.VOCAB_SIZE, seed=22)[0]
    driver = Driver(pair.ours)
    driver.add("r", prompt, 10, HOT, num_sequences=5, num_logprobs=2)
    driver.run()
    for events in driver.sequences("r"):
        assert_equal_to_transformers(pair, prompt, events, 2)
    assert len({tuple(events[-1].token_ids) for events in driver.sequences("r")}) > 1


def test_beams_report_them_too(tiny_pair: PairOf) -> None:
    pair = tiny_pair("llama")
    prompt = random_prompts((30,), vocab_size=tiny_models.VOCAB_SIZE, seed=23)[0]
    driver = Driver(pair.ours)
    sampling = SamplingParams(temperature=0.0, repetition_penalty=1.2)
    driver.add("r", prompt, 10, sampling, beam_width=4, num_sequences=3, num_logprobs=3)
    driver.run()
    for events in driver.sequences("r"):
        assert_equal_to_transformers(pair, prompt, events, 3)


def test_default_model(default_pair: Pair) -> None:
    prompt = random_prompts((12,), vocab_size=default_pair.ours.info.vocab_size, seed=24)[0]
    driver = Driver(default_pair.ours)
    driver.add("r", prompt, 6, HOT, num_logprobs=20)
    driver.run()
    assert_equal_to_transformers(default_pair, prompt, driver.events["r"], 20)
