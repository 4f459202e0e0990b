"""From a file's bytes to the JSON object in them, with one clear line for whatever stands in the way."""

from __future__ import annotations

import codecs
import json
import math
from pathlib import Path
from typing import Final, NoReturn

from mindserve.config.faults import ConfigUnreadable
from mindserve.errors import shown

MAX_CONFIG_BYTES: Final = 1024 * 1024
"""A larger file is not a config; reading it would only delay the message that says so."""

MAX_CONFIG_DEPTH: Final = 64
"""Python's own limit lies near 500, and is not the same for reading a value as for looking through it."""

_MAX_DIGITS: Final = 40
"""No key takes more than 64 bits: what is longer cannot be meant."""


class JsonInvalid(ValueError):
    """A text is not the JSON it should be. The text says why, in one line without the place."""

    def __init__(self, problem: str, place: tuple[int, int] | None = None) -> None:
        super().__init__(problem)
        self.place = place
        """Line and column, from 1, where they are known."""


def read_config(path: Path) -> dict[str, object]:
    """The object in the file. Raises ``ConfigUnreadable`` with the file's name and, for bad JSON, line and column."""
    data = _read_bytes(path)
    if data.startswith(codecs.BOM_UTF8):
        raise ConfigUnreadable(f"{path}: starts with a byte order mark: save it as UTF-8 without one")
    if not data.strip():
        raise ConfigUnreadable(f"{path}: is empty")
    try:
        content = parse_json(data.decode())
    except UnicodeDecodeError as error:
        raise ConfigUnreadable(f"{path}: is not UTF-8 text (byte {error.start})") from error
    except JsonInvalid as error:
        place = f":{error.place[0]}:{error.place[1]}" if error.place else ""
        raise ConfigUnreadable(f"{path}{place}: {error}") from error
    if not isinstance(content, dict):
        raise ConfigUnreadable(f"{path}: must hold one JSON object, holds {shown(content)}")
    return content


def parse_json(text: str) -> object:
    """JSON as its standard has it: no NaN, no key twice; numbers that exist, and no bottomless nesting.

    Raises ``JsonInvalid``."""
    try:
        content: object = json.loads(
            text,
            object_pairs_hook=_unique_keys,
            parse_constant=_refuse_constant,
            parse_int=_integer,
            parse_float=_finite,
        )
    except json.JSONDecodeError as error:
        raise JsonInvalid(f"is not valid JSON: {error.msg}", (error.lineno, error.colno)) from error
    except RecursionError as error:
        raise JsonInvalid(_TOO_DEEP) from error
    _check_depth(content)
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


_TOO_DEEP: Final = f"is nested more than {MAX_CONFIG_DEPTH} deep"


def _check_depth(content: object) -> None:
    level = [content]
    for _ in range(MAX_CONFIG_DEPTH + 1):
        containers = [item for item in level if isinstance(item, dict | list)]
        if not containers:
            return
        level = [inner for item in containers for inner in (item.values() if isinstance(item, dict) else item)]
    raise JsonInvalid(_TOO_DEEP)


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content: dict[str, object] = {}
    for key, value in pairs:
        if key in content:
            raise JsonInvalid(f"the key {shown(key)} stands twice in one object")
        content[key] = value
    return content


def _refuse_constant(name: str) -> NoReturn:
    raise JsonInvalid(f"{name} is not a JSON number")


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise JsonInvalid(f"the number {_start(text)} has {len(text)} characters, the maximum is {_MAX_DIGITS}")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise JsonInvalid(f"the number {_start(text)} is too large")
    return number


def _start(number: str) -> str:
    return number if len(number) <= _MAX_DIGITS else f"{number[:_MAX_DIGITS]}…"
