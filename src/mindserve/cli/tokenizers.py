"""Loading the tokenizer that belongs to an engine's model."""

from __future__ import annotations

import tempfile
from pathlib import Path

from mindserve.chat.tokenizer import ChatTokenizer, load_tokenizer
from mindserve.cli.engine_options import EngineChoice
from mindserve_engine.scripted.model import write_model


def load_engine_tokenizer(choice: EngineChoice) -> ChatTokenizer:
    """Blocking, takes seconds. Raises ``StartupError``, or ``EngineError`` for a broken script."""
    path = choice.options.model_path
    if choice.name != "scripted":
        return load_tokenizer(path, trust_remote_code=choice.options.trust_remote_code)
    # A script has no model folder: one is written for the time of loading.
    with tempfile.TemporaryDirectory(prefix="mindserve-script-") as folder:
        write_model(path, Path(folder))
        return load_tokenizer(Path(folder))
