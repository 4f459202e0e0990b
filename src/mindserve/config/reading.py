"""From a file's bytes to the JSON object in them, with one clear line for whatever stands in the way."""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import Final, NoReturn

from mindserve.config.faults import ConfigUnreadable

MAX_CONFIG_BYTES: Final = 1024 * 1024
"""A larger file is not a config; reading it would only delay the message that says so."""


class _Unreadable(ValueError):
    """Raised inside the JSON reader, where the file's name is not known."""


def read_config(path: Path) -> dict[str, object]:
    """The object in the file. Raises ``ConfigUnreadable`` with the file's name and, for bad JSON, line and column."""
    data = _read_bytes(path)
    if data.startswith(codecs.BOM_UTF8):
        raise ConfigUnreadable(f"{path}: starts with a byte order mark: save it as UTF-8 without one")
    if not data.strip():
        raise ConfigUnreadable(f"{path}: is empty")
    try:
        content = json.loads(data.decode(), object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise ConfigUnreadable(f"{path}: is not UTF-8 text (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise ConfigUnreadable(f"{path}:{error.lineno}:{error.colno}: is not valid JSON: {error.msg}") from error
    except RecursionError as error:
        raise ConfigUnreadable(f"{path}: is nested too deeply") from error
    except ValueError as error:  # ours, and Python's own limit on the digits of a number
        raise ConfigUnreadable(f"{path}: {error}") from error
    if not isinstance(content, dict):
        raise ConfigUnreadable(f"{path}: must hold one JSON object")
    return content


def _read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise ConfigUnreadable(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_CONFIG_BYTES:
        raise ConfigUnreadable(f"{path}: is larger than {MAX_CONFIG_BYTES} bytes, which no config.json is")
    return data


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content: dict[str, object] = {}
    for key, value in pairs:
        if key in content:
            raise _Unreadable(f"the key {json.dumps(key)} stands twice in one object")
        content[key] = value
    return content


def _refuse_constant(name: str) -> NoReturn:
    raise _Unreadable(f"{name} is not a JSON number")
