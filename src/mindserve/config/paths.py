"""Where the files named in a config are."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from mindserve.config._generated import Config, LoraModule
from mindserve.config.overrides import the_model
from mindserve.config.packaged import PackagedModel, packaged_model

_MINDIE_CONFIG_FOLDER: Final = "conf"
_MAX_PATH_CHARACTERS: Final = 512


def base_folder(config_file: Path | None) -> Path:
    """Folder at which relative paths of the file start: its own, or the one above MindIE's ``conf``."""
    if config_file is None:
        return Path.cwd()
    folder = config_file.absolute().parent
    return folder.parent if folder.name == _MINDIE_CONFIG_FOLDER else folder


def model_place(config: Config, base: Path) -> Path | PackagedModel:
    """The weights' folder or file, or a model that is fetched."""
    text = the_model(config).model_weight_path
    packaged = packaged_model(text, base)
    # os.path leaves the home of a user who does not exist as it is, where Path.expanduser would raise.
    return packaged if packaged is not None else base / os.path.expanduser(text or "")  # noqa: PTH111


def api_key_file(config: Config, base: Path) -> Path | None:
    """The file with the API keys, if there is one."""
    text = config.server_config.api_key_file
    return None if text is None else base / os.path.expanduser(text)  # noqa: PTH111


def adapter_path(module: LoraModule, base: Path) -> Path:
    """The folder of a LoRA adapter."""
    return base / os.path.expanduser(module.path)  # noqa: PTH111


def template_text(text: str, base: Path) -> str:
    """A chat template as it is loaded: Jinja source, or the path of a ``.jinja`` file."""
    return str(base / os.path.expanduser(text)) if text.endswith(".jinja") else text  # noqa: PTH111


def model_path_problem(path: Path, backend_type: str) -> str | None:
    """Why nothing can be loaded from ``path``, as far as its outside tells."""
    try:
        return _model_problem(path, backend_type)
    except OSError as error:
        return f"{path_text(path)} cannot be read: {error.strerror or error}"


def file_problem(path: Path) -> str | None:
    """Why there is no file to read at ``path``."""
    try:
        return None if path.is_file() else f"there is no file {path_text(path)}"
    except OSError as error:
        return f"{path_text(path)} cannot be read: {error.strerror or error}"


def path_text(path: Path) -> str:
    """A path as one line of an error text, whatever characters a config put into it."""
    text = str(path)
    if len(text) > _MAX_PATH_CHARACTERS:
        return f"{text[:_MAX_PATH_CHARACTERS]}…"
    return text if text.isprintable() else json.dumps(text)


def _model_problem(path: Path, backend_type: str) -> str | None:
    name = path_text(path)
    if not path.exists():
        return f"{name} does not exist"
    if backend_type == "scripted":
        return None if path.is_file() else f"{name} is not a script file"
    if path.is_file():
        return None if path.suffix == ".gguf" else f"{name} is neither a model's folder nor a .gguf file"
    if (path / "config.json").is_file():
        return None
    files = sorted(path.glob("*.gguf"))
    hint = f": name the file itself, such as {files[0].name}" if files else ""
    return f"{name} has no config.json{hint}"
