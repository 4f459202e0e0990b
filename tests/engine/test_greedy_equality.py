"""Greedy output in float32 equals transformers' ``generate``, token for token, however the work is cut up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests import tiny_gguf, tiny_models
from tests.engine.conftest import Pair
from tests.engine.drive import Driver, assert_continues, generate, load, random_prompts, reference

PairOf = Callable[[str], Pair]
FAMILIES = ("llama", "qwen2", "qwen3")
LENGTHS = (1, 2, 15, 16, 17, 33, 70, 110)
"""Around the edges of blocks (16 tokens) and tiles."""
NUM_TOKENS = 20


def prompts_for(lengths: tuple[int, ...], seed: int = 0) -> list[list[int]]:
    return random_prompts(lengths, vocab_size=tiny_models.VOCAB_SIZE, seed=seed)


@pytest.mark.parametrize("name", [*tiny_models.LEAN, *tiny_models.GENERIC])
def test_mixed_batch(tiny_pair: PairOf, name: str) -> None:
    pair = tiny_pair(name)
    prompts = prompts_for(LENGTHS)
    expected = reference(pair.theirs, prompts, NUM_TOKENS)
    assert len({token for tokens in expected for token in tokens}) > 10, "the reference says nothing"
    assert_continues(generate(pair.ours, prompts, NUM_TOKENS), expected)


def test_generic_model_from_gguf(tmp_path: Path) -> None:
    """Read by transformers, run over our cache; 4-bit weights are widened."""
    path = tiny_gguf.write("gemma2", tmp_path)
    ours = load(path, block_size=16)
    assert (ours.info.model_type, ours.info.weights) == ("gemma2", "float32")
    assert ours.info.eos_token_ids == (256, tiny_models.IM_END)
    theirs = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    )
    prompts = prompts_for(LENGTHS)
    assert_continues(generate(ours, prompts, NUM_TOKENS), reference(theirs, prompts, NUM_TOKENS))


@pytest.mark.parametrize("name", FAMILIES)
def test_single_sequence(tiny_pair: PairOf, name: str) -> None:
    pair = tiny_pair(name)
    for prompt in prompts_for((1, 40), seed=1):
        assert_continues(generate(pair.ours, [prompt], 40), reference(pair.theirs, [prompt], 40))


@pytest.mark.parametrize("name", [*FAMILIES, "gemma2", "gpt-oss", "mistral-window"])
@pytest.mark.parametrize("max_step_tokens", [7, 32])
def test_chunked_prefill(tiny_pair: PairOf, name: str, max_step_tokens: int) -> None:
    """Prompts longer than a step, computed beside decoding sequences."""
    pair = tiny_pair(name)
    prompts = prompts_for((3, 90, 50, 120), seed=2)
    expected = reference(pair.theirs, prompts, NUM_TOKENS)
    assert_continues(generate(pair.ours, prompts, NUM_TOKENS, max_step_tokens=max_step_tokens), expected)


@pytest.mark.parametrize("name", [*FAMILIES, "gemma2"])
def test_prefix_hits(tiny_pair: PairOf, name: str) -> None:
    pair = tiny_pair(name)
    shared, *tails = prompts_for((64, 5, 20, 1), seed=3)
    prompts = [shared + tail for tail in tails]
    driver = Driver(pair.ours)
    driver.add("first", prompts[0], NUM_TOKENS)
    driver.run()
    for number, prompt in enumerate(prompts):
        driver.add(str(number), prompt, NUM_TOKENS)
    tokens = driver.run()
    assert all(driver.num_cached[str(number)] >= len(shared) - 16 for number in range(len(prompts)))
    assert_continues(
        [tokens[str(number)] for number in range(len(prompts))], reference(pair.theirs, prompts, NUM_TOKENS)
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_after_preemption(tiny_pair: PairOf, name: str) -> None:
    """A pool too small for all: sequences are thrown out and computed anew."""
    pair = tiny_pair(name)
    runner = pair.ours.runner
    all_blocks, runner.num_blocks = runner.num_blocks, 32
    try:
        driver = Driver(pair.ours, prefix_cache=False)
        prompts = prompts_for((60, 61, 62, 63, 64, 65), seed=4)
        for number, prompt in enumerate(prompts):
            driver.add(str(number), prompt, 60)
        tokens = driver.run()
    finally:
        runner.num_blocks = all_blocks
    assert driver.loop.stats().num_preemptions_total > 0
    assert_continues([tokens[str(number)] for number in range(len(prompts))], reference(pair.theirs, prompts, 60))


def test_requests_arriving_while_others_run(tiny_pair: PairOf) -> None:
    pair = tiny_pair("llama")
    prompts = prompts_for((30, 5, 80, 1, 45), seed=5)
    driver = Driver(pair.ours)
    for number, prompt in enumerate(prompts):
        driver.add(str(number), prompt, NUM_TOKENS)
        driver.step()
        driver.step()
    tokens = driver.run()
    assert_continues(
        [tokens[str(number)] for number in range(len(prompts))], reference(pair.theirs, prompts, NUM_TOKENS)
    )


def test_default_model_mixed_chunked_and_cached(default_pair: Pair) -> None:
    """The default model on real text: a mixed batch in chunks, then the same again from the prefix cache."""
    prompts = random_prompts((1, 12, 40, 77), vocab_size=default_pair.ours.info.vocab_size, seed=6)
    expected = reference(default_pair.theirs, prompts, 16)
    driver = Driver(default_pair.ours, max_step_tokens=48)
    for again in ("first", "second"):
        for number, prompt in enumerate(prompts):
            driver.add(f"{again} {number}", prompt, 16)
        tokens = driver.run()
        assert_continues([tokens[f"{again} {number}"] for number in range(len(prompts))], expected)
    assert driver.num_cached["second 3"] >= 64


def test_default_model_alone(default_pair: Pair) -> None:
    prompt = random_prompts((25,), vocab_size=default_pair.ours.info.vocab_size, seed=8)[0]
    assert_continues(generate(default_pair.ours, [prompt], 24), reference(default_pair.theirs, [prompt], 24))
