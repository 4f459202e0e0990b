"""Greedy output in float32 equals transformers' ``generate``, token for token, however the work is cut up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from mindserve.chat.tokenizer import load_tokenizer
from tests import tiny_gguf, tiny_models
from tests.engine.conftest import Pair
from tests.engine.drive import Driver, assert_continues, generate, load, prompts_for, reference, small_pool

PairOf = Callable[[str], Pair]
FAMILIES = ("llama", "qwen2", "qwen3")
LENGTHS = (1, 2, 15, 16, 17, 33, 70, 110)
"""Around the edges of blocks (16 tokens) and tiles."""
NUM_TOKENS = 20


@pytest.mark.parametrize("name", [*tiny_models.LEAN, *tiny_models.GENERIC])
def test_mixed_batch(tiny_pair: PairOf, name: str) -> None:
    pair = tiny_pair(name)
    prompts = prompts_for(LENGTHS)
    expected = reference(pair.theirs, prompts, NUM_TOKENS)
    assert len({token for tokens in expected for token in tokens}) > 10, "the reference says nothing"
    assert_continues(generate(pair.ours, prompts, NUM_TOKENS), expected)


@pytest.mark.parametrize("name", [*tiny_models.LEAN, *tiny_models.GENERIC])
def test_mixed_batch_without_a_compiler(tiny_pair: PairOf, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "")
    pair = tiny_pair(name)
    ours = load(pair.path, block_size=16)
    prompts = prompts_for(LENGTHS)
    assert_continues(generate(ours, prompts, NUM_TOKENS), reference(pair.theirs, prompts, NUM_TOKENS))


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
    prompts = prompts_for((60, 61, 62, 63, 64, 65), seed=4)
    with small_pool(pair.ours, 32) as small:
        driver = Driver(small, prefix_cache=False)
        for number, prompt in enumerate(prompts):
            driver.add(str(number), prompt, 60)
        tokens = driver.run()
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


TEXTS = (
    "The",
    "Water boils at a lower temperature in the mountains, because",
    "def is_prime(n):\n    if n < 2:\n        return False\n    for divisor in range(2, n):\n",
    "In the morning the market opened. Farmers had come down from the hills with apples, pears and the first grapes, "
    "and the baker, who was always late, pushed his cart through the narrow gate while the bells rang seven. Nobody "
    "hurried: there was a whole day for buying and selling, and for news. The oldest of the women sat down beside the "
    "well and",
    "Dear Ms Keller,\n\nthank you for your letter of 3 May. Unfortunately, we cannot",
    "1, 1, 2, 3, 5, 8, 13, 21,",
)


@pytest.fixture(scope="module")
def texts(default_pair: Pair) -> list[list[int]]:
    """Real text as the model's own tokenizer reads it."""
    tokenizer = load_tokenizer(default_pair.path).backend
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]


@pytest.fixture(scope="module")
def continued(default_pair: Pair, texts: list[list[int]]) -> list[list[int]]:
    """What transformers makes of them."""
    return reference(default_pair.theirs, texts, NUM_TOKENS)


def test_default_model_mixed_chunked_and_cached(
    default_pair: Pair, texts: list[list[int]], continued: list[list[int]]
) -> None:
    """The default model on real text: a mixed batch in chunks, then the same again from the prefix cache."""
    driver = Driver(default_pair.ours, max_step_tokens=48)
    for again in ("first", "second"):
        for number, prompt in enumerate(texts):
            driver.add(f"{again} {number}", prompt, NUM_TOKENS)
        tokens = driver.run()
        assert_continues([tokens[f"{again} {number}"] for number in range(len(texts))], continued)
    assert driver.num_cached["second 3"] >= 64


def test_default_model_after_preemption(default_pair: Pair, texts: list[list[int]], continued: list[list[int]]) -> None:
    with small_pool(default_pair.ours, 6) as small:
        driver = Driver(small, prefix_cache=False)
        for number, prompt in enumerate(texts):
            driver.add(str(number), prompt, NUM_TOKENS)
        tokens = driver.run()
    assert driver.loop.stats().num_preemptions_total > 0
    assert_continues([tokens[str(number)] for number in range(len(texts))], continued)


def test_default_model_alone(default_pair: Pair, texts: list[list[int]], continued: list[list[int]]) -> None:
    assert_continues(generate(default_pair.ours, texts[2:3], NUM_TOKENS), continued[2:3])
