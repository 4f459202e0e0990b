"""The chat template that the operator sets for a type of models."""

from __future__ import annotations

from pathlib import Path

import pytest

from mindserve.cli.engine_options import EngineChoice
from mindserve.cli.tokenizers import load_engine_tokenizer
from mindserve.config.settings import ModelTypeSettings
from mindserve_engine.options import EngineOptions
from tests.qwen import qwen_file
from tests.serving import write_script
from tests.tiny_models import CHAT_TEMPLATE, build

OWN = "{% for message in messages %}[{{ message.content }}]{% endfor %}"
TYPES = {"Qwen2": ModelTypeSettings(chat_template=OWN), "scripted": ModelTypeSettings(chat_template=OWN)}


def source_of(engine: str, path: Path, types: dict[str, ModelTypeSettings]) -> str:
    choice = EngineChoice(engine, EngineOptions(model_path=path))
    return load_engine_tokenizer(choice, types).template_source(with_tools=False)


@pytest.mark.parametrize(("name", "template"), [("qwen2-yarn-rope", OWN), ("llama", CHAT_TEMPLATE)])
def test_the_template_of_a_folders_type(tmp_path: Path, name: str, template: str) -> None:
    folder = build(name, tmp_path)
    assert source_of("native", folder, TYPES) == template
    assert source_of("native", folder, {}) == CHAT_TEMPLATE


def test_a_file_with_a_template(tmp_path: Path) -> None:
    (tmp_path / "own.jinja").write_text(OWN)
    types = {"llama": ModelTypeSettings(chat_template=str(tmp_path / "own.jinja"))}
    assert source_of("native", build("llama", tmp_path / "model"), types) == OWN


def test_the_template_of_a_script(tmp_path: Path) -> None:
    script = write_script(tmp_path, [{"default": True, "pieces": ["x"]}])
    assert source_of("scripted", script, TYPES) == OWN
    assert source_of("scripted", script, {}) != OWN


def test_the_template_of_a_gguf_files_type() -> None:
    assert source_of("native", qwen_file(), {"qwen2": ModelTypeSettings(chat_template=OWN)}) == OWN
    assert source_of("native", qwen_file(), {"llama": ModelTypeSettings(chat_template=OWN)}) != OWN
