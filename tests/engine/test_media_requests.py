"""What requests can ask beside greedy text works with media too; encoding holds nobody up and can be given up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from mindserve.chat.tokenizer import load_tokenizer
from mindserve_engine.native.loop import NOT_ENCODED
from mindserve_engine.native.multimodal.blocks import ROWS
from mindserve_engine.types import FinishReason, MediaItem, SamplingParams
from tests import media_prompts as given
from tests import tiny_adapters, tiny_models
from tests import tiny_media_models as tiny
from tests.engine import drive
from tests.engine.drive import Driver, assert_continues
from tests.engine.media import MediaPair, PairOf, continuation, counting, run
from tests.engine.test_beam_equality import assert_found
from tests.media_prompts import Prompt, item, picture, prompt

HOT = SamplingParams(temperature=1.5, seed=3)


@pytest.mark.parametrize("name", tiny.NAMES)
def test_several_sequences_of_one_prompt(media_pair: PairOf, name: str) -> None:
    """Each goes on as it would alone, and the item is encoded once."""
    pair = media_pair(name)
    driver = Driver(pair.ours, max_step_tokens=32)
    with counting(pair.ours) as begun:
        for number, one in enumerate(pair.prompts):
            driver.add(f"n {number}", one.token_ids, 16, media=one.media, num_sequences=3)
            driver.add(f"hot {number}", one.token_ids, 16, HOT, media=one.media, num_sequences=3)
        driver.run()
    assert len(begun) == len(set(begun))
    for number, expected in enumerate(pair.expected):
        found = [[token for event in events for token in event.token_ids] for events in driver.sequences(f"n {number}")]
        assert_continues(found, [expected] * 3)
    alone = Driver(pair.ours, prefix_cache=False)
    alone.add("hot", pair.prompts[1].token_ids, 16, HOT, media=pair.prompts[1].media, num_sequences=3)
    alone.run()
    assert _tokens(alone, "hot") == _tokens(driver, "hot 1")
    assert len({tuple(tokens) for tokens in _tokens(alone, "hot")}) == 3


@pytest.mark.parametrize("name", tiny.NAMES)
def test_beams(media_pair: PairOf, name: str) -> None:
    pair = media_pair(name)
    asked = pair.prompts[1 if name == "qwen2_audio" else 2]  # transformers mixes up the recordings of several beams
    driver = Driver(pair.ours, max_step_tokens=32)
    driver.add("beams", asked.token_ids, 12, beam_width=3, num_sequences=3, media=asked.media)
    driver.add("beside", pair.prompts[1].token_ids, 16, media=pair.prompts[1].media)
    driver.run()
    assert_found(driver, "beams", _beams(pair, asked, 12))
    assert_continues([driver.tokens["beside"]], [pair.expected[1]])


@pytest.mark.parametrize("name", tiny.NAMES)
def test_log_probabilities(media_pair: PairOf, name: str) -> None:
    pair = media_pair(name)
    asked = pair.prompts[2]
    driver = Driver(pair.ours, max_step_tokens=32)
    driver.add("r", asked.token_ids, 8, media=asked.media, num_logprobs=4)
    driver.run()
    output = pair.theirs.generate(
        **given.arguments(name, asked),
        do_sample=False,
        max_new_tokens=8,
        output_logits=True,
        return_dict_in_generate=True,
    )
    assert driver.tokens["r"] == output.sequences[0, len(asked.token_ids) :].tolist()
    expected = torch.log_softmax(torch.cat(output.logits), dim=-1).topk(4).values
    entries = [entry for event in driver.events["r"] for entry in event.logprobs]
    for entry, values in zip(entries, expected.tolist(), strict=True):
        assert entry.top_logprobs == pytest.approx(values, abs=2e-4)
        assert entry.logprob == entry.top_logprobs[0]


def test_ends(media_pair: PairOf) -> None:
    pair = media_pair("qwen2_vl")
    asked, expected = pair.prompts[1], pair.expected[1]
    stop = expected[4]
    driver = Driver(pair.ours)
    driver.add("stop", asked.token_ids, 16, media=asked.media, stop_token_ids=(stop,))
    driver.add("length", asked.token_ids, 3, media=asked.media)
    driver.run()
    assert driver.tokens["stop"] == expected[: expected.index(stop) + 1]
    assert driver.events["stop"][-1].finish_reason is FinishReason.STOP_TOKEN
    assert driver.events["length"][-1].finish_reason is FinishReason.LENGTH
    assert driver.events["stop"][-1].num_prompt_tokens == len(asked.token_ids)


def test_a_grammar(media_pair: PairOf) -> None:
    pair = media_pair("qwen2_vl")
    tokenizer = load_tokenizer(pair.path)
    driver = Driver(pair.ours)
    driver.loop.learn(tokenizer.vocabulary(pair.ours.info.eos_token_ids))
    asked = pair.prompts[1]
    driver.add("r", asked.token_ids, 16, media=asked.media, grammar='start: "yes" | "no"', ignore_eos=False)
    driver.run()
    assert b"".join(map(tokenizer.token_bytes, driver.tokens["r"][:-1])) in (b"yes", b"no")


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_audio"])
def test_adapters(media_pair: PairOf, name: str, tmp_path: Path) -> None:
    """Of the language model; blocks are shared neither with other adapters nor with none."""
    pair = media_pair(name)
    targets = r".*language_model.*\.(q_proj|v_proj|o_proj|up_proj|down_proj)"
    merged = tiny_adapters.write(pair.path, tmp_path, seed=1, model_class=tiny.load, target_modules=targets)
    ours = drive.load(pair.path, block_size=16, adapters={"a": tmp_path})
    driver = Driver(ours, max_step_tokens=50)
    asked = pair.prompts[1:4]
    expected = [continuation(name, merged, one) for one in asked]
    assert_continues(run(driver, asked, "plain "), pair.expected[1:4])
    assert_continues(run(driver, asked, "adapted ", adapter="a"), expected)
    assert expected != pair.expected[1:4]
    assert {driver.num_cached[f"adapted {number}"] for number in range(3)} <= {0, 16}


def test_others_get_a_token_in_every_step_while_an_image_is_encoded(media_pair: PairOf) -> None:
    """A piece at a time: where a step has no time to spare, that is all that is done in it."""
    pair = media_pair("qwen2_vl")
    image = _large(pair)
    asked = prompt(_model(pair), "Look: ", image, " What is it?")
    driver = Driver(pair.ours, prefix_cache=False, mixed_step_ms=0.0)
    driver.loop._pacer.encoding_s = lambda num_decodes: 0.0
    driver.add("text", pair.prompts[0].token_ids, 60)
    driver.step()
    driver.add("late", asked.token_ids, 16, media=asked.media)
    num_steps = 0
    while not driver.tokens["late"]:
        before = len(driver.tokens["text"])
        driver.step()
        num_steps += 1
        assert len(driver.tokens["text"]) == min(60, before + 1)
    num_pieces = 3 * 2 * (4 * image.num_tokens // ROWS)
    assert num_steps > num_pieces, "the image was encoded in fewer steps than it has pieces"
    driver.run()
    assert_continues([driver.tokens["late"]], [continuation("qwen2_vl", pair.theirs, asked)])
    assert_continues([driver.tokens["text"][:16]], [pair.expected[0]])


def test_younger_requests_overtake_one_that_waits_for_its_image(media_pair: PairOf) -> None:
    pair = media_pair("qwen2_5_vl")
    asked = prompt(_model(pair), "Look: ", _large(pair), " What is it?")
    driver = Driver(pair.ours, prefix_cache=False)
    driver.loop._pacer.encoding_s = lambda num_decodes: 0.0
    driver.add("image", asked.token_ids, 16, media=asked.media)
    driver.step()
    driver.add("text", pair.prompts[0].token_ids, 16)
    while not driver.events["text"] or driver.events["text"][-1].finish_reason is None:
        driver.step()
    assert driver.tokens["image"] == []
    assert_continues([driver.tokens["text"]], [pair.expected[0]])
    driver.run()
    assert_continues([driver.tokens["image"]], [continuation("qwen2_5_vl", pair.theirs, asked)])


def test_giving_up_while_an_image_is_encoded(media_pair: PairOf) -> None:
    pair = media_pair("qwen2_vl")
    asked = prompt(_model(pair), "Look: ", _large(pair), " What is it?")
    driver = Driver(pair.ours, prefix_cache=False)
    driver.loop._pacer.encoding_s = lambda num_decodes: 0.0
    driver.add("image", asked.token_ids, 16, media=asked.media)
    for _ in range(4):
        driver.step()
    assert driver.loop._encoding.current is not None
    assert driver.loop.abort("image")
    assert driver.loop._encoding.current is None
    assert pair.ours.runner.encoder._item is None
    assert not driver.loop.has_work
    driver.loop.check()
    assert_continues(run(driver, pair.prompts[:2]), pair.expected[:2])


def test_media_that_cannot_be_encoded_fail_alone(media_pair: PairOf, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = media_pair("qwen2_vl")
    encoder: Any = pair.ours.runner.encoder
    encode = encoder._tower.encode
    bad = pair.prompts[2].media[1].digest

    def fail_on_one(one: MediaItem) -> Iterator[Any]:
        for part in encode(one):
            if one.digest == bad:
                raise RuntimeError("no memory")
            yield part

    monkeypatch.setattr(encoder._tower, "encode", fail_on_one)
    driver = Driver(pair.ours, prefix_cache=False)
    run(driver, pair.prompts[:4])
    assert driver.failures == {"2": NOT_ENCODED}
    assert_continues([driver.tokens[number] for number in "013"], [pair.expected[int(number)] for number in "013"])


def test_a_recording_of_no_numbers_fails_alone_and_is_not_kept(media_pair: PairOf) -> None:
    pair = media_pair("qwen2_audio")
    model = _model(pair)
    silent = given.sound(16000)
    silent[5] = float("nan")
    asked = prompt(model, "Listen: ", item(silent, model), "!")
    driver = Driver(pair.ours)
    driver.add("nan", asked.token_ids, 16, media=asked.media)
    assert_continues(run(driver, pair.prompts[:2]), pair.expected[:2])
    assert "not finite" in driver.failures["nan"]
    assert asked.media[0].digest not in driver.loop._encoding.cache


def _model(pair: MediaPair) -> Any:
    assert pair.ours.info.media is not None
    return pair.ours.info.media


def _large(pair: MediaPair) -> MediaItem:
    return item(picture(8, 8, seed=77), _model(pair))


def _tokens(driver: Driver, request_id: str) -> list[list[int]]:
    return [[token for event in events for token in event.token_ids] for events in driver.sequences(request_id)]


def _beams(pair: MediaPair, asked: Prompt, num_tokens: int) -> list[tuple[list[int], float]]:
    """All hypotheses of transformers' search with their scores, best first."""
    pair.theirs.generation_config.eos_token_id = None
    pair.theirs.generation_config.pad_token_id = tiny_models.VOCAB_SIZE - 1
    output = pair.theirs.generate(
        **given.arguments(pair.name, asked),
        do_sample=False,
        num_beams=3,
        num_return_sequences=3,
        max_new_tokens=num_tokens,
        return_dict_in_generate=True,
        output_scores=True,
    )
    tokens = output.sequences[:, len(asked.token_ids) :].tolist()
    return list(zip(tokens, output.sequences_scores.tolist(), strict=True))
