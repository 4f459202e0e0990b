"""What a folder says of its media; one that lacks something is refused with a line that names the file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mindserve_engine.interface import EngineError
from mindserve_engine.native.device.base import Device
from mindserve_engine.native.models.facts import read_facts
from mindserve_engine.native.models.load import load_model
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import MediaModel
from tests import tiny_media_models as tiny
from tests.engine import drive
from tests.media_prompts import rule


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: tiny.build(name, tmp_path_factory.mktemp(name)) for name in tiny.NAMES}


def copied(folder: Path, to: Path) -> Path:
    for path in folder.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    return to


def test_models_that_see(folders: dict[str, Path]) -> None:
    for name in ("qwen2_vl", "qwen2_5_vl"):
        facts = read_facts(folders[name], trust_remote_code=False)
        assert (facts.model_type, facts.eos_token_ids) == (name, (258,))
        assert facts.media is not None
        assert facts.media.model == MediaModel(
            image_token_id=tiny.IMAGE,
            video_token_id=tiny.VIDEO,
            patch_size=14,
            merge_size=2,
            frames_per_patch=2,
            min_pixels=tiny.MIN_PIXELS,
            max_pixels=tiny.MAX_PIXELS,
        )
        assert facts.media.rule == rule(name)


def test_a_model_that_hears(folders: dict[str, Path]) -> None:
    facts = read_facts(folders["qwen2_audio"], trust_remote_code=False)
    assert facts.media is not None
    assert facts.media.model == MediaModel(
        audio_token_id=tiny.AUDIO, sample_rate=16_000, samples_per_frame=160, max_samples=16_000
    )


def test_published_limits_and_the_file_of_newer_folders(folders: dict[str, Path], tmp_path: Path) -> None:
    """min_pixels and max_pixels are the older names; an image gets at most 4,096 tokens unless maxImageTokens
    says otherwise, and never more than the files allow."""
    folder = copied(folders["qwen2_vl"], tmp_path)
    own = folder / "preprocessor_config.json"
    tiny.change_json(own, size=None, min_pixels=3136, max_pixels=12_845_056)
    facts = read_facts(folder, trust_remote_code=False)
    assert facts.media is not None
    assert (facts.media.model.min_pixels, facts.media.model.max_pixels) == (3136, 4096 * 28 * 28)
    for allowed, found in ((9000, 9000), (20_000, 16_384)):
        more = drive.load(folder, max_image_tokens=allowed).info.media
        assert more is not None
        assert more.max_pixels == found * 28 * 28
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": json.loads(own.read_text())}))
    own.unlink()
    again = read_facts(folder, trust_remote_code=False)
    assert again.media is not None
    assert again.media.model == facts.media.model


@pytest.mark.parametrize("name", tiny.NAMES)
def test_a_folder_without_its_processor(folders: dict[str, Path], tmp_path: Path, name: str) -> None:
    folder = copied(folders[name], tmp_path)
    (folder / "preprocessor_config.json").unlink()
    wanted = f"{re.escape(str(folder))}: no preprocessor_config.json in the model folder; a {name} model needs it for"
    with pytest.raises(EngineError, match=wanted) as caught:
        drive.load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("qwen2_vl", {"image_mean": None}, "no 'image_mean'"),
        ("qwen2_vl", {"image_mean": [0.5]}, "must have 3 numbers, not 1"),
        ("qwen2_vl", {"patch_size": 16}, "its patches are"),
        ("qwen2_5_vl", {"size": None}, "no 'shortest_edge'"),
        ("qwen2_audio", {"chunk_length": 30}, "30 s give 3000 frames, the tower of config.json takes 100"),
        ("qwen2_audio", {"feature_size": 80}, "feature_size 80 is not num_mel_bins"),
        ("qwen2_audio", {"hop_length": 0}, "cannot be computed with"),
    ],
)
def test_a_processor_that_does_not_fit(
    folders: dict[str, Path], tmp_path: Path, name: str, changes: dict[str, Any], words: str
) -> None:
    folder = copied(folders[name], tmp_path)
    tiny.change_json(folder / "preprocessor_config.json", **changes)
    with pytest.raises(EngineError, match=re.escape(f"{folder}/preprocessor_config.json: not usable")) as caught:
        drive.load(folder)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "lost"), [("qwen2_vl", "visual.merger.ln_q.weight"), ("qwen2_audio", "audio_tower.conv1.bias")]
)
def test_a_tower_without_one_of_its_weights(folders: dict[str, Path], tmp_path: Path, name: str, lost: str) -> None:
    folder = copied(folders[name], tmp_path)
    tiny.rename_weights(folder, {lost: "lost"})
    with pytest.raises(EngineError, match=re.escape(f"{folder}: the weights have no tensor '{lost}'")):
        drive.load(folder)


def test_a_rule_that_is_not_known(folders: dict[str, Path]) -> None:
    with pytest.raises(EngineError, match="media_positions: 'far' is none of extent, side"):
        drive.load(folders["qwen2_vl"], media_positions="far")


@pytest.mark.parametrize("name", tiny.NAMES)
@pytest.mark.parametrize("device", ["npu", "cuda"])
def test_towers_run_on_the_cpu_alone(folders: dict[str, Path], name: str, device: str) -> None:
    """Refused before a weight is read, rather than computed on the CPU or lost on the way to the device."""
    facts, elsewhere = read_facts(folders[name], trust_remote_code=False), cast("Device", SimpleNamespace(name=device))
    options = EngineOptions(model_path=folders[name])
    with pytest.raises(EngineError, match=f"the {name} model runs on cpu alone, not on {device}"):
        load_model(facts, options, elsewhere, max_positions=64, progress=lambda _: None)
