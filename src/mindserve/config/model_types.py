"""The settings of the type of model that is served, among those of all types (key ``models``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mindserve.config._generated import Config
from mindserve.config.overrides import the_model
from mindserve.config.paths import template_text
from mindserve.config.settings import ModelTypeSettings

_OTHER_NAMES: Final = {"deepseekv3": "deepseekv2"}
"""MindIE has one name where transformers has two."""


def model_type_settings(config: Config, base: Path) -> dict[str, ModelTypeSettings]:
    """Those of all types, by the names in the file. ``base`` is where relative paths start."""
    return {
        name: ModelTypeSettings(
            enable_reasoning=one.enable_reasoning,
            tool_call_parser=one.tool_call_options.tool_call_parser,
            chat_template=None if one.chat_template is None else template_text(one.chat_template, base),
        )
        for name, one in the_model(config).models.items()
    }


def settings_of_type(by_type: Mapping[str, ModelTypeSettings], model_type: str) -> ModelTypeSettings:
    """Those of ``model_type``; capitals and punctuation make no difference."""
    folded = {_fold(name): settings for name, settings in by_type.items()}
    name = _fold(model_type)
    return folded.get(name) or folded.get(_OTHER_NAMES.get(name, "")) or ModelTypeSettings()


def _fold(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())
