"""What vLLM is handed of media: transformers' numbers, our places and digests."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

pytest.importorskip("vllm", reason="vllm is not installed here")

import torch
from transformers import AutoConfig
from vllm.multimodal.inputs import MultiModalFieldConfig

from mindserve_engine.interface import GenerationFailed
from mindserve_engine.media.facts import MediaFacts, read_media
from mindserve_engine.vllm import plugin
from mindserve_engine.vllm.media_input import MediaReader
from tests import media_prompts as given
from tests import tiny_media_models as tiny
from tests.media_prompts import film, item, picture, prompt, sound

MODELS = "vllm.model_executor.models"
KEYS = {
    "image": ("pixel_values", "image_grid_thw"),
    "video": ("pixel_values_videos", "video_grid_thw", "second_per_grid_ts"),
    "audio": ("input_features", "feature_attention_mask"),
}


@pytest.fixture(scope="module")
def all_facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, MediaFacts]:
    folders: dict[str, Path] = {name: tiny.build(name, tmp_path_factory.mktemp(name)) for name in tiny.NAMES}
    return {name: read_media(folder, AutoConfig.from_pretrained(folder)) for name, folder in folders.items()}


def reader(facts: MediaFacts, *, are_bytes: bool = False, dtype: torch.dtype = torch.float32) -> MediaReader:
    processor = SimpleNamespace(_get_mm_fields_config=lambda inputs, _options: fields_of(facts, inputs))
    return MediaReader(facts, processor, dtype=dtype, are_bytes=are_bytes)


def fields_of(facts: MediaFacts, inputs: Any) -> Any:
    """As vLLM's processor of the model has them."""
    if facts.patches is None:
        return importlib.import_module(f"{MODELS}.qwen2_audio")._qwen2audio_field_config(inputs)
    plugin._do_without_torchvision()
    known = importlib.import_module(f"{MODELS}.qwen2_vl")._create_qwen2vl_field_factory(2)(inputs)
    return {**known, "second_per_grid_ts": MultiModalFieldConfig.batched("video", keep_on_cpu=True)}


def asked(name: str, facts: MediaFacts) -> given.Prompt:
    model = facts.model
    if name == "qwen2_audio":
        return prompt(model, "a", item(sound(16000), model), "b", item(sound(8111, seed=1), model))
    clip = item(film(5, 2, 3), model, seconds_per_frame=0.31)
    return prompt(model, item(picture(3, 5), model), "a", clip, "b", item(picture(7, 7, seed=1), model))


@pytest.mark.parametrize("name", tiny.NAMES)
def test_numbers_are_those_of_transformers(all_facts: dict[str, MediaFacts], name: str) -> None:
    one = asked(name, all_facts[name])
    made = reader(all_facts[name]).read(one.media).prompt(one.token_ids)
    theirs = given.arguments(name, one)
    assert made["type"] == "multimodal"
    assert made["prompt_token_ids"] == one.token_ids
    for kind, items in made["mm_kwargs"].items():
        for key in KEYS[kind]:
            if key not in theirs:
                assert key == "second_per_grid_ts" and name == "qwen2_vl"  # noqa: PT018
                assert key not in items[0]
                continue
            parts = [part[key].data for part in items]
            whole = torch.cat(parts) if key.startswith("pixel") else torch.stack(parts)
            assert torch.equal(whole, torch.as_tensor(theirs[key])), key


@pytest.mark.parametrize("name", tiny.NAMES)
def test_places_and_digests_are_those_of_the_request(all_facts: dict[str, MediaFacts], name: str) -> None:
    one = asked(name, all_facts[name])
    made = reader(all_facts[name]).read(one.media).prompt(one.token_ids)
    kinds = {part.kind.value for part in one.media}
    assert set(made["mm_placeholders"]) == set(made["mm_hashes"]) == set(made["mm_kwargs"]) == kinds
    for kind in kinds:
        items = [part for part in one.media if part.kind == kind]
        assert [(place.offset, place.length) for place in made["mm_placeholders"][kind]] == [
            (part.start, part.num_tokens) for part in items
        ]
        assert made["mm_hashes"][kind] == [part.digest.hex() for part in items]


def test_bytes_are_left_to_the_device(all_facts: dict[str, MediaFacts]) -> None:
    """Normalised as vLLM does it, they are what we normalise ourselves."""
    facts = all_facts["qwen2_vl"]
    one = asked("qwen2_vl", facts)
    raw, ready = (reader(facts, are_bytes=are_bytes).read(one.media).kwargs for are_bytes in (True, False))
    assert facts.normalisation is not None
    mean, deviation = (
        torch.tensor(values)[:, None] for values in (facts.normalisation.mean, facts.normalisation.deviation)
    )
    for kind, key in (("image", "pixel_values"), ("video", "pixel_values_videos")):
        for left, right in zip(raw[kind], ready[kind], strict=True):
            pixels = left[key].data
            assert pixels.dtype == torch.uint8
            values = (pixels.reshape(len(pixels), 3, -1) * facts.normalisation.scale - mean) / deviation
            torch.testing.assert_close(values.reshape(len(pixels), -1), right[key].data, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", tiny.NAMES)
def test_numbers_that_do_not_fill_their_places_are_no_input(all_facts: dict[str, MediaFacts], name: str) -> None:
    one = asked(name, all_facts[name]).media[0]
    wrong = msgspec.structs.replace(one, num_tokens=one.num_tokens + 1)
    with pytest.raises(GenerationFailed, match=f"makes {one.num_tokens} tokens, not {one.num_tokens + 1}"):
        reader(all_facts[name]).read([wrong])


def test_numbers_have_the_models_type(all_facts: dict[str, MediaFacts]) -> None:
    for name in ("qwen2_vl", "qwen2_audio"):
        one = asked(name, all_facts[name])
        made = reader(all_facts[name], dtype=torch.bfloat16).read(one.media[:1]).kwargs
        key = "input_features" if name == "qwen2_audio" else "pixel_values"
        assert next(iter(made.values()))[0][key].data.dtype == torch.bfloat16
