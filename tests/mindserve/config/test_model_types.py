from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mindserve.config.load import LoadedConfig
from mindserve.config.model_types import model_type_settings, settings_of_type
from mindserve.config.settings import ModelTypeSettings

QWEN, DEEPSEEK = ModelTypeSettings(tool_call_parser="hermes"), ModelTypeSettings(enable_reasoning=False)
BY_TYPE = {"Qwen-3_moe": QWEN, "deepseekv2": DEEPSEEK}
PLACE = "BackendConfig.ModelDeployConfig.ModelConfig[0].models.qwen3.chat_template"


@pytest.mark.parametrize(
    ("model_type", "settings"),
    [
        ("qwen3_moe", QWEN),
        ("deepseek_v2", DEEPSEEK),
        ("deepseek_v3", DEEPSEEK),
        ("qwen3", ModelTypeSettings()),
        ("", ModelTypeSettings()),
    ],
)
def test_the_served_type_has_its_settings(model_type: str, settings: ModelTypeSettings) -> None:
    assert settings_of_type(BY_TYPE, model_type) == settings


def test_a_name_of_its_own_wins_over_the_shared_one() -> None:
    assert settings_of_type({"deepseekv2": DEEPSEEK, "deepseek_v3": QWEN}, "deepseek_v3") is QWEN


def _content(template: str) -> dict[str, Any]:
    model = {"models": {"qwen3": {"chat_template": template}}}
    return {"BackendConfig": {"ModelDeployConfig": {"ModelConfig": [model]}}}


def test_a_template_file_is_looked_for_beside_the_config(load: Callable[..., LoadedConfig], tmp_path: Path) -> None:
    (tmp_path / "own.jinja").write_text("x")
    loaded = load(_content("own.jinja"))
    assert model_type_settings(loaded.config, loaded.base)["qwen3"].chat_template == str(tmp_path / "own.jinja")


def test_a_template_in_the_config_stays_as_it_is(load: Callable[..., LoadedConfig]) -> None:
    loaded = load(_content("{{ messages }}"))
    assert model_type_settings(loaded.config, loaded.base)["qwen3"].chat_template == "{{ messages }}"


def test_a_template_file_that_is_missing_is_a_fault(faults_of: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    assert faults_of(_content("none.jinja")) == {PLACE: f"there is no file {tmp_path / 'none.jinja'}"}
