"""Loading the tokenizer that belongs to an engine's model."""

from __future__ import annotations

import tempfile
from pathlib import Path

from mindserve.chat.tokenizer import ChatTokenizer, load_tokenizer
from mindserve.cli.engine_options import EngineChoice
from mindserve.errors import StartupError
from mindserve_engine.scripted.model import write_model


def load_engine_tokenizer(choice: EngineChoice) -> ChatTokenizer:
    """Blocking, takes seconds. Raises ``StartupError``."""
    path = choice.options.model_path
    try:
        if choice.name != "scripted":
            return load_tokenizer(path, trust_remote_code=choice.options.trust_remote_code)
        return _load_of_script(path)
    except StartupError:
        raise
    except Exception as error:  # whatever a broken file makes the library raise, a person gets one line
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise StartupError(f"the tokenizer of {path} cannot be loaded: {reason}") from error


def _load_of_script(script: Path) -> ChatTokenizer:
    """A script has no model folder: one is written for the time of loading."""
    with tempfile.TemporaryDirectory(prefix="mindserve-script-") as folder:
        write_model(script, Path(folder))
        return load_tokenizer(Path(folder))
