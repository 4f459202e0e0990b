"""Where the files named in a config are."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mindserve.config._generated import Config
from mindserve.config.overrides import the_model

_MINDIE_CONFIG_FOLDER: Final = "conf"


def base_folder(config_file: Path | None) -> Path:
    """Folder at which relative paths of the file start: its own, or the one above MindIE's ``conf``."""
    if config_file is None:
        return Path.cwd()
    folder = config_file.absolute().parent
    return folder.parent if folder.name == _MINDIE_CONFIG_FOLDER else folder


def model_path(config: Config, base: Path) -> Path | None:
    """The weights' folder or file; ``None``: the default model."""
    text = the_model(config).model_weight_path
    return None if text is None else base / Path(text).expanduser()


def model_path_problem(path: Path, backend_type: str) -> str | None:
    """Why nothing can be loaded from ``path``, as far as its outside tells."""
    if not path.exists():
        return f"{path} does not exist"
    if backend_type == "scripted":
        return None if path.is_file() else f"{path} is not a script file"
    if path.is_file():
        return None if path.suffix == ".gguf" else f"{path} is neither a model's folder nor a .gguf file"
    if (path / "config.json").is_file():
        return None
    files = sorted(path.glob("*.gguf"))
    hint = f": name the file itself, such as {files[0].name}" if files else ""
    return f"{path} has no config.json{hint}"
