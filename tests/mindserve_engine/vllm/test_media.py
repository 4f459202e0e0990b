"""What of media is decided without vLLM: kinds, limits, sizes, and what its processes are told."""

from __future__ import annotations

import math
import shutil
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mindserve_engine.interface import EngineError, RequestInvalid
from mindserve_engine.media.facts import MediaFacts, read_media
from mindserve_engine.media_admission import check_media
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import EngineInfo, GenerationRequest, MediaKind
from mindserve_engine.vllm import launch, media
from mindserve_engine.vllm.arguments import engine_arguments
from tests import tiny_media_models as tiny
from tests import tiny_models
from tests.media_prompts import item, picture, prompt

ROOM = {"encoder_tokens": 256, "video_tokens": 2000}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {name: tiny.build(name, tmp_path_factory.mktemp(name)) for name in tiny.NAMES}
    return {**made, "llama": tiny_models.build("llama", tmp_path_factory.mktemp("llama"))}


def facts(folder: Path) -> MediaFacts:
    from transformers import AutoConfig

    return read_media(folder, AutoConfig.from_pretrained(folder))


def test_families_are_known_by_their_files(folders: dict[str, Path]) -> None:
    assert {name: media.family(folder) for name, folder in folders.items()} == {
        **dict(zip(tiny.NAMES, tiny.NAMES, strict=True)),
        "llama": None,
    }


@pytest.mark.parametrize(
    ("name", "kinds"),
    [("qwen2_vl", ["image", "video"]), ("qwen2_5_vl", ["image", "video"]), ("qwen2_audio", ["audio"])],
)
def test_limits_are_those_of_the_server(folders: dict[str, Path], name: str, kinds: list[str]) -> None:
    arguments = engine_arguments(EngineOptions(model_path=folders[name], max_media_items=3))
    assert arguments["limit_mm_per_prompt"] == dict.fromkeys(kinds, 3)
    assert arguments["mm_processor_cache_gb"] == 0
    theirs = {"limit_mm_per_prompt": {"video": 0}}
    given = engine_arguments(EngineOptions(model_path=folders[name], engine_args=theirs))
    assert given["limit_mm_per_prompt"] == {"video": 0}


def test_other_models_get_none(folders: dict[str, Path]) -> None:
    arguments = engine_arguments(EngineOptions(model_path=folders["llama"]))
    assert not [name for name in arguments if "mm_" in name]


def test_kinds_that_vllm_was_told_not_to_take(folders: dict[str, Path]) -> None:
    seeing = facts(folders["qwen2_vl"])
    both = media.taken(seeing, {MediaKind.IMAGE: 20, MediaKind.VIDEO: 20}, **ROOM)
    assert both is not None
    assert both.model == seeing.model
    assert both.max_item_tokens == 2000
    images = media.taken(seeing, {MediaKind.IMAGE: 2, MediaKind.VIDEO: 0}, **ROOM)
    assert images is not None
    assert (images.model.image_token_id, images.model.video_token_id) == (tiny.IMAGE, None)
    assert images.max_item_tokens == 256
    assert media.taken(seeing, {MediaKind.IMAGE: 0, MediaKind.VIDEO: 0}, **ROOM) is None


def test_recordings_of_a_length_that_vllm_does_not_know(folders: dict[str, Path]) -> None:
    hearing = facts(folders["qwen2_audio"])
    limits = {MediaKind.AUDIO: 20}
    with pytest.raises(EngineError, match="vLLM takes recordings of 3000 frames alone, those of this model have 100"):
        media.taken(hearing, limits, **ROOM)
    published = replace(hearing, model=msgspec.structs.replace(hearing.model, max_samples=480_000))
    taken = media.taken(published, limits, **ROOM)
    assert taken is not None
    assert (taken.model, taken.max_item_tokens) == (published.model, 750)


def test_more_or_larger_items_than_vllm_takes_are_refused(folders: dict[str, Path]) -> None:
    taken = media.taken(
        facts(folders["qwen2_vl"]), {MediaKind.IMAGE: 2, MediaKind.VIDEO: 0}, encoder_tokens=16, video_tokens=0
    )
    assert taken is not None
    small, long = item(picture(2, 2), taken.model), item(picture(1, 65), taken.model)
    media.check_items(ask(taken, small, small), taken)
    with pytest.raises(RequestInvalid, match="media: are 3 of kind image, vLLM takes at most 2"):
        media.check_items(ask(taken, small, small, small), taken)
    with pytest.raises(RequestInvalid, match=r"media\[1\]: has 65 tokens, vLLM has room for 64 of one item"):
        media.check_items(ask(taken, small, long), taken)


def ask(taken: media.TakenMedia, *items: Any) -> GenerationRequest:
    one = prompt(taken.model, *items)
    return GenerationRequest(request_id="r", prompt_token_ids=one.token_ids, media=one.media, max_tokens=1)


@pytest.mark.parametrize("name", tiny.NAMES)
@pytest.mark.parametrize("tokens", [1, 7, 63, 64, 65, 1000, 8192])
def test_the_largest_item_has_its_tokens(folders: dict[str, Path], name: str, tokens: int) -> None:
    """Nearly: what is not a product of two sides near each other cannot be one item."""
    model = facts(folders[name]).model
    for kind in media.KINDS[name]:
        most = media.max_tokens(model, kind, tokens)
        shape = media.largest_shape(model, kind, most)
        found = model.num_tokens(kind, shape)
        num_steps = -(-shape[0] // model.frames_per_patch) if kind is MediaKind.VIDEO else 1
        lost = 0 if kind is MediaKind.AUDIO else num_steps * (math.isqrt(most // num_steps) + 1)
        assert most - lost <= found <= most
        checked = media.blank(model, kind, shape)
        ids = [model.token_id(kind) or 0] * found
        request = GenerationRequest(request_id="r", prompt_token_ids=ids, media=(checked,), max_tokens=1)
        check_media(
            request, EngineInfo(model_type=name, vocab_size=300, max_context=9000, max_prompt_tokens=8999, media=model)
        )


@pytest.mark.parametrize("name", tiny.NAMES)
def test_first_requests_have_one_item_of_each_kind(folders: dict[str, Path], name: str) -> None:
    model = facts(folders[name]).model
    info = EngineInfo(model_type=name, vocab_size=300, max_context=384, max_prompt_tokens=383, media=model)
    found = media.smallest_prompts(model)
    assert [one.kind for _, one in found] == [*media.KINDS[name]]
    for token_ids, one in found:
        check_media(GenerationRequest(request_id="r", prompt_token_ids=token_ids, media=(one,), max_tokens=1), info)
    assert len({one.digest for _, one in found}) == len(found)


def test_processes_are_told_what_they_serve(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "entry_points", lambda **_: [object()])
    environ = {media.FAMILY: "another"}
    media.set_media_environment(EngineOptions(model_path=folders["llama"]), environ)
    assert environ == {}
    options = EngineOptions(model_path=folders["qwen2_vl"], max_image_tokens=7000, max_video_tokens=77)
    media.set_media_environment(options, environ)
    told = {media.MAX_IMAGE_TOKENS: "7000", media.MAX_VIDEO_TOKENS: "77"}
    assert environ == {media.FAMILY: "qwen2_vl", **told}
    environ["VLLM_PLUGINS"] = "ascend"
    with pytest.raises(EngineError, match="VLLM_PLUGINS leaves out: add mindserve to it"):
        media.set_media_environment(EngineOptions(model_path=folders["qwen2_vl"]), environ)
    environ["VLLM_PLUGINS"] = "ascend,mindserve"
    media.set_media_environment(EngineOptions(model_path=folders["qwen2_vl"]), environ)


def test_a_folder_that_lacks_a_file_is_told_before_vllm_is_imported(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folders["qwen2_vl"], tmp_path, dirs_exist_ok=True)
    (tmp_path / "preprocessor_config.json").unlink()
    monkeypatch.setattr(launch, "set_environment", lambda _: None)
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(EngineError, match=r"no preprocessor_config\.json in the model folder"):
        launch.prepare(EngineOptions(model_path=tmp_path))


def test_an_installation_without_the_plugin_is_told(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "entry_points", lambda **_: [])
    with pytest.raises(EngineError, match="does not name: install it again"):
        media.set_media_environment(EngineOptions(model_path=folders["qwen2_audio"]), {})
    media.set_media_environment(EngineOptions(model_path=folders["llama"]), {})


def test_the_plugin_is_where_vllm_looks_for_it() -> None:
    import tomllib

    content = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text("utf-8"))
    value = content["project"]["entry-points"][media.PLUGINS][media.OWN_PLUGIN]
    from mindserve_engine.vllm.plugin import register

    assert EntryPoint(media.OWN_PLUGIN, value, media.PLUGINS).load() is register


def test_the_plugin_does_nothing_where_no_model_of_ours_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    from mindserve_engine.vllm import plugin

    monkeypatch.setattr(plugin, "_replace_processor", lambda _: pytest.fail("it did"))
    for value in ("", "llama"):
        monkeypatch.setenv(media.FAMILY, value)
        plugin.register()
