"""A bias of tokens changes greedy output and beams as transformers' ``sequence_bias`` does, and its own row alone."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import torch

from mindserve_engine.types import SamplingParams
from tests import tiny_models
from tests.engine.conftest import Pair
from tests.engine.drive import GREEDY, Driver, random_prompts
from tests.engine.test_beam_equality import assert_found, beam_reference

PairOf = Callable[[str], Pair]
NUM_TOKENS = 16


def biased(tokens: list[int], favourites: list[int]) -> tuple[tuple[int, float], ...]:
    """Rules the first ``tokens`` out, and pushes others a little."""
    return tuple({**dict.fromkeys(favourites, 1.5), **dict.fromkeys(tokens[:3], -100.0)}.items())


def test_greedy_rows_beside_unbiased_ones(tiny_pair: PairOf) -> None:
    pair = tiny_pair("qwen3")
    prompts = random_prompts((5, 33, 18), vocab_size=tiny_models.VOCAB_SIZE, seed=41)
    plain = Driver(pair.ours)
    for number, prompt in enumerate(prompts):
        plain.add(str(number), prompt, NUM_TOKENS)
    before = plain.run()
    driver, wishes = Driver(pair.ours), {}
    for number, prompt in enumerate(prompts):
        wishes[number] = biased(before[str(number)], [7, 11]) if number != 1 else ()
        driver.add(str(number), prompt, NUM_TOKENS, msgspec.structs.replace(GREEDY, logit_bias=wishes[number]))
    after = driver.run()
    assert after["1"] == before["1"]
    for number in (0, 2):
        ids = torch.tensor([prompts[number]])
        pair.theirs.generation_config.eos_token_id = None
        expected = pair.theirs.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=NUM_TOKENS,
            pad_token_id=0,
            sequence_bias=[[[token], bias] for token, bias in wishes[number]],
        )
        assert after[str(number)] == expected[0, ids.shape[1] :].tolist()
        assert not set(after[str(number)]) & set(before[str(number)][:3])


def test_beams(tiny_pair: PairOf) -> None:
    pair = tiny_pair("llama")
    (prompt,) = random_prompts((12,), vocab_size=tiny_models.VOCAB_SIZE, seed=42)
    found = beam_reference(pair.theirs, prompt, 3)
    bias = biased(found[0][0], [5])
    expected = beam_reference(pair.theirs, prompt, 3, sequence_bias=[[[token], value] for token, value in bias])
    assert expected != found
    driver = Driver(pair.ours)
    driver.add("b", prompt, 14, SamplingParams(temperature=0.0, logit_bias=bias), beam_width=3, num_sequences=3)
    driver.run()
    assert_found(driver, "b", expected)
