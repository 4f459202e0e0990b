"""``mindserve serve --model DIR`` for folders of models that see or hear: what is missing or broken is told at once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from safetensors.torch import load_file, save_file

from mindserve_engine.native.models.facts import read_facts
from mindserve_engine.types import MediaKind
from tests import tiny_media_models as tiny
from tests.media_service import first, part, turn

Change = Callable[[Path], Any]
FAMILIES = {"qwen2_vl": MediaKind.IMAGE, "qwen2_5_vl": MediaKind.VIDEO, "qwen2_audio": MediaKind.AUDIO}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: tiny.build(name, tmp_path_factory.mktemp(name)) for name in tiny.NAMES}


def copied(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to, dirs_exist_ok=True)
    return to


def written(name: str, content: str) -> Change:
    return lambda folder: (folder / name).write_text(content)


def without(*names: str) -> Change:
    return lambda folder: [(folder / name).unlink() for name in names]


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def in_shards(folder: Path) -> None:
    """As large models are published, with the template in the processor's file and the vocabulary in one."""
    weights = load_file(folder / "model.safetensors")
    names, index = sorted(weights), {}
    for number, shard in enumerate((names[::2], names[1::2]), start=1):
        file = f"model-0000{number}-of-00002.safetensors"
        save_file({name: weights[name] for name in shard}, folder / file, metadata={"format": "pt"})
        index |= dict.fromkeys(shard, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    (folder / "model.safetensors").unlink()
    template = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").unlink()
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": template}))


def flatten(folder: Path) -> None:
    """The forms of config.json and of the processor's file from before transformers had nested ones: those of models
    that see have the language model's fields beside their own."""
    path, processor = folder / "config.json", folder / "preprocessor_config.json"
    config = json.loads(path.read_text())
    text = config.pop("text_config")
    rope = text.pop("rope_parameters")
    text = {key: value for key, value in text.items() if key not in ("layer_types", "dtype")}
    text["rope_theta"] = rope["rope_theta"]
    config["torch_dtype"] = config.pop("dtype")
    if "vision_config" in config:
        text["rope_scaling"] = {"type": "mrope", "mrope_section": rope["mrope_section"]}
        del config["vision_config"]["model_type"]
        path.write_text(json.dumps({**text, **config}))
        tiny.change_json(processor, size=None, min_pixels=tiny.MIN_PIXELS, max_pixels=tiny.MAX_PIXELS)
    else:
        config["audio_token_index"] = config.pop("audio_token_id", None) or config["audio_token_index"]
        path.write_text(json.dumps({**config, "text_config": text, "vocab_size": text["vocab_size"]}))
        rate = json.loads(processor.read_text())["sampling_rate"]
        tiny.change_json(processor, n_samples=rate * tiny.AUDIO_SECONDS, nb_max_frames=100 * tiny.AUDIO_SECONDS)


def meaning(config: Any) -> dict[str, Any]:
    """Of a language model: what the form of the file adds is left out."""
    fields = config.to_diff_dict()
    fields.pop("dtype", None)
    fields["rope_parameters"].pop("type", None)
    return dict(fields)


def half_a_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").rename(folder / "vocab.json")


def lost_shard(folder: Path) -> None:
    in_shards(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()


BROKEN: list[tuple[str, Change, str]] = [
    ("no config", without("config.json"), "has no config.json"),
    ("broken config", written("config.json", "{"), "/config.json: not valid JSON"),
    ("no processor", without("preprocessor_config.json"), "no preprocessor_config.json in the model folder"),
    ("broken processor", written("preprocessor_config.json", "{"), "/preprocessor_config.json: not valid JSON"),
    ("processor of nothing", written("preprocessor_config.json", "[]"), "/preprocessor_config.json: not a JSON object"),
    ("broken video processor", written("video_preprocessor_config.json", "{"), "/video_preprocessor_config.json: not"),
    ("other videos", written("video_preprocessor_config.json", '{"patch_size": 16}'), "/video_preprocessor_config"),
    ("broken generation", written("generation_config.json", "{"), "/generation_config.json: not valid JSON"),
    ("no tokenizer", without("tokenizer.json"), "no tokenizer.json in the model folder"),
    ("half a tokenizer", half_a_tokenizer, "no merges.txt in the model folder"),
    ("broken tokenizer", written("tokenizer.json", "{"), "/tokenizer.json: not valid JSON"),
    ("broken tokenizer's config", written("tokenizer_config.json", "{"), "/tokenizer_config.json: not valid JSON"),
    ("no template", without("chat_template.jinja"), "the model has no chat template"),
    ("broken template", written("chat_template.jinja", "{% for %}"), "/chat_template.jinja: broken chat template"),
    ("broken template of a processor", written("chat_template.json", "{"), "/chat_template.json: not valid JSON"),
    ("template of text alone", written("chat_template.jinja", "{{ messages }}"), "chat template writes no placeholder"),
    ("no weights", without("model.safetensors"), "neither model.safetensors nor model.safetensors.index.json is there"),
    ("cut weights", cut, "/model.safetensors: not a whole safetensors file"),
    ("weights that are none", written("model.safetensors", "weights"), "/model.safetensors: not a readable"),
    ("broken index", written("model.safetensors.index.json", "{"), "/model.safetensors.index.json: not a safetensors"),
    ("a lost shard", lost_shard, "/model-00002-of-00002.safetensors: the index names this file, but it does not exist"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_a_folder_that_lacks_something_is_refused_with_a_line(
    folders: dict[str, Path], tmp_path: Path, mindserve: Callable[..., Any], change: Change, words: str
) -> None:
    folder = copied(folders["qwen2_vl"], tmp_path)
    change(folder)
    done = mindserve("serve", "--model", folder, "--port", 0, "--log-level", "error")
    assert done.code == 2
    told = done.errors.splitlines()[-1]
    assert words in told
    assert str(folder) in told or "chat_template" in told
    assert "Traceback" not in done.errors
    assert done.output == ""


@pytest.mark.parametrize("name", tiny.NAMES)
def test_folders_as_they_are_published_are_served(
    folders: dict[str, Path], tmp_path: Path, serve: Callable[..., Any], name: str
) -> None:
    """Shards with an index, ``chat_template.json``, no file for videos, configs of older forms."""
    folder = copied(folders[name], tmp_path)
    in_shards(folder)
    flatten(folder)
    nested, flat = (read_facts(path, trust_remote_code=False) for path in (folders[name], folder))
    assert meaning(flat.config) == meaning(nested.config)
    assert nested.media is not None
    assert flat.media is not None
    assert replace(flat.media, config=nested.media.config, processor={}) == replace(nested.media, processor={})
    served = serve("--model", folder, "--port", 0, "--model-name", "tiny")
    file = first(FAMILIES[name])
    asked = turn(part(file.kind, file.data_url), {"type": "text", "text": "?"})
    body = {"model": "tiny", "messages": [asked], "max_tokens": 3, "ignore_eos": True}
    answer = httpx2.post(f"{served.url}/v1/chat/completions", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] == 3
