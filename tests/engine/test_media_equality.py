"""Images, video and sound in float32 give what transformers' ``generate`` gives, token for token, however the work is
cut up and whatever is in the caches."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import tiny_media_models as tiny
from tests.engine import drive
from tests.engine.drive import Driver, assert_continues, small_pool
from tests.engine.media import SEEING, PairOf, continuation, counting, positions, run
from tests.media_prompts import film, item, picture, prompt


@pytest.mark.parametrize("name", tiny.NAMES)
@pytest.mark.parametrize("max_step_tokens", [7, 16, 50, 4096])
def test_mixed_batch_cold_and_warm(media_pair: PairOf, name: str, max_step_tokens: int) -> None:
    """Beside requests of text; small steps cut prompts inside of items."""
    pair = media_pair(name)
    assert len({token for tokens in pair.expected for token in tokens}) > 10, "the reference says nothing"
    driver = Driver(pair.ours, max_step_tokens=max_step_tokens, max_batch_size=min(8, max_step_tokens))
    assert_continues(run(driver, pair.prompts, "cold "), pair.expected)
    with counting(pair.ours) as begun:
        assert_continues(run(driver, pair.prompts, "warm "), pair.expected)
    assert begun == [], "what is in a cache was encoded again"
    for number, one in enumerate(pair.prompts):
        assert driver.num_cached[f"warm {number}"] == (len(one.token_ids) - 1) // 16 * 16


@pytest.mark.parametrize("name", tiny.NAMES)
@pytest.mark.parametrize("options", [{"deterministic": True}, {"CXX": ""}], ids=["deterministic", "no compiler"])
def test_other_kernels(
    media_pair: PairOf, name: str, options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = media_pair(name)
    if "CXX" in options:
        monkeypatch.setenv("CXX", "")
        options = {}
    ours = drive.load(pair.path, block_size=16, **options)
    assert_continues(run(Driver(ours, max_step_tokens=50), pair.prompts), pair.expected)


@pytest.mark.parametrize("name", SEEING)
def test_text_behind_a_video_by_its_longer_side(media_pair: PairOf, name: str) -> None:
    """The rule of transformers 5.24, whose own generate is asked to keep to it from the first token to the last."""
    pair = media_pair(name)
    ours = drive.load(pair.path, block_size=16, media_positions="side")
    asked = [pair.prompts[number] for number in (5, 7)]
    expected = [
        continuation(name, pair.theirs, one, position_ids=positions(name, one, is_by_side=True)) for one in asked
    ]
    assert_continues(run(Driver(ours), asked), expected)
    assert expected[1] != pair.expected[7], "the rules do not differ here"


def test_times_beyond_the_longest_context(media_pair: PairOf) -> None:
    """Twenty minutes between two steps count 2,400 each: no table of angles is that long."""
    pair = media_pair("qwen2_5_vl")
    model = pair.ours.info.media
    assert model is not None
    seen = item(film(8, 2, 2, seed=6), model, seconds_per_frame=600.0)
    asked = [prompt(model, "A slow one: ", seen, " And?"), pair.prompts[0]]
    expected = [continuation("qwen2_5_vl", pair.theirs, asked[0]), pair.expected[0]]
    assert positions("qwen2_5_vl", asked[0]).max() > 7000 > pair.ours.info.max_context
    assert_continues(run(Driver(pair.ours), asked), expected)


@pytest.mark.parametrize("name", tiny.NAMES)
@pytest.mark.parametrize("max_step_tokens", [16, 4096])
def test_after_preemption_and_with_no_place_for_embeddings(media_pair: PairOf, name: str, max_step_tokens: int) -> None:
    """A pool too small for all, and no more than one item's embeddings at a time: items are encoded again."""
    pair = media_pair(name)
    with small_pool(pair.ours, 12) as small, counting(small) as begun:
        driver = Driver(small, prefix_cache=False, media_cache_mb=0, max_step_tokens=max_step_tokens, max_batch_size=4)
        for number, one in enumerate(pair.prompts * 2):
            driver.add(str(number), one.token_ids, 40, media=one.media)
        tokens = driver.run()
    assert driver.loop.stats().num_preemptions_total > 0
    assert len(begun) > len(set(begun))
    found = [tokens[str(number)][:16] for number in range(len(pair.prompts) * 2)]
    assert_continues(found, pair.expected * 2)


def test_a_hit_that_ends_inside_an_item(media_pair: PairOf) -> None:
    """With its embeddings at hand or not."""
    pair = media_pair("qwen2_vl")
    model = pair.ours.info.media
    assert model is not None
    asked = prompt(model, "What is this? ", item(picture(7, 7, seed=9), model), " Answer.")
    expected = [continuation("qwen2_vl", pair.theirs, asked)]
    driver = Driver(pair.ours)
    assert_continues(run(driver, [asked], "cold"), expected)
    for prefix, is_encoded in (("kept", False), ("lost", True)):
        driver.loop._pool.distrust(list(driver.loop._pool._cached.values())[2:])
        if is_encoded:
            driver.loop._encoding.cache.drop(asked.media[0].digest)
            del pair.ours.runner.encoder._embeddings[asked.media[0].digest]
        with counting(pair.ours) as begun:
            assert_continues(run(driver, [asked], prefix), expected)
        assert driver.num_cached[f"{prefix}0"] == 32
        assert asked.media[0].start < 32 < asked.media[0].start + asked.media[0].num_tokens
        assert bool(begun) == is_encoded


@pytest.mark.parametrize("name", SEEING)
def test_other_pixels_of_the_same_size_share_nothing(media_pair: PairOf, name: str) -> None:
    pair = media_pair(name)
    model = pair.ours.info.media
    assert model is not None
    asked = [
        prompt(model, "One user's picture: ", item(picture(5, 8, seed=seed), model), " What is it?") for seed in (1, 2)
    ]
    assert asked[0].token_ids == asked[1].token_ids
    expected = [continuation(name, pair.theirs, one) for one in asked]
    assert expected[0] != expected[1]
    driver = Driver(pair.ours)
    for number, one in enumerate(asked):
        assert_continues(run(driver, [one], str(number)), expected[number : number + 1])
        assert driver.num_cached[f"{number}0"] == (16 if number else 0)


def test_another_question_about_the_same_image_is_not_encoded_again(media_pair: PairOf) -> None:
    pair = media_pair("qwen2_5_vl")
    model = pair.ours.info.media
    assert model is not None
    seen = item(film(6, 4, 4, seed=5), model, seconds_per_frame=0.5)
    asked = [prompt(model, "Look: ", seen, question) for question in (" Who is this?", " What happens next?")]
    driver = Driver(pair.ours)
    with counting(pair.ours) as begun:
        for number, one in enumerate(asked):
            expected = [continuation("qwen2_5_vl", pair.theirs, one)]
            assert_continues(run(driver, [one], str(number)), expected)
    assert begun == [seen.digest]
    assert driver.num_cached["10"] == 48


@pytest.mark.parametrize(
    ("name", "renamed"),
    [
        ("qwen2_vl", {"visual.": "model.visual.", "model.": "model.language_model."}),
        (
            "qwen2_audio",
            {
                "language_model.lm_head": "lm_head",
                "language_model.model.": "model.language_model.",
                "audio_tower.": "model.audio_tower.",
                "multi_modal_projector.": "model.multi_modal_projector.",
            },
        ),
    ],
)
def test_files_with_the_names_of_today(media_pair: PairOf, name: str, renamed: dict[str, str], tmp_path: Path) -> None:
    pair = media_pair(name)
    tiny.build(name, tmp_path)
    tiny.rename_weights(tmp_path, renamed)
    assert_continues(run(Driver(drive.load(tmp_path, block_size=16)), pair.prompts), pair.expected)


def test_tied_embeddings(tmp_path: Path) -> None:
    path = tiny.build("qwen2_vl", tmp_path, tie_word_embeddings=True)
    ours = drive.load(path, block_size=16)
    model = ours.info.media
    assert model is not None
    asked = prompt(model, "Look: ", item(picture(3, 3), model), " What is it?")
    assert_continues(run(Driver(ours), [asked]), [continuation("qwen2_vl", tiny.load(path), asked)])
