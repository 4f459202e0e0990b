"""Loading the tokenizer that belongs to an engine's model."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from mindserve.chat.gguf_metadata import read_gguf_metadata
from mindserve.chat.tokenizer import ChatTokenizer, load_tokenizer
from mindserve.cli.engine_options import EngineChoice
from mindserve.config.model_types import settings_of_type
from mindserve.config.settings import ModelTypeSettings
from mindserve_engine.scripted.model import MODEL_TYPE, write_model


def load_engine_tokenizer(choice: EngineChoice, model_types: Mapping[str, ModelTypeSettings]) -> ChatTokenizer:
    """``model_types``: settings, of which a chat template may be one. Blocking, takes seconds. Raises ``StartupError``,
    or ``EngineError`` for a broken script."""
    path = choice.options.model_path
    if choice.name != "scripted":
        own = any(settings.chat_template for settings in model_types.values())
        template = settings_of_type(model_types, _model_type(path)).chat_template if own else None
        return load_tokenizer(path, trust_remote_code=choice.options.trust_remote_code, chat_template=template)
    # A script has no model folder: one is written for the time of loading.
    with tempfile.TemporaryDirectory(prefix="mindserve-script-") as folder:
        write_model(path, Path(folder))
        return load_tokenizer(Path(folder), chat_template=settings_of_type(model_types, MODEL_TYPE).chat_template)


def _model_type(path: Path) -> str:
    """As the model's own files have it; empty where they do not say, which loading the model will complain of."""
    try:
        if path.is_file():
            return str(read_gguf_metadata(path).get("general.architecture", ""))
        return str(json.loads((path / "config.json").read_bytes()).get("model_type", ""))
    except (OSError, ValueError, AttributeError):
        return ""
