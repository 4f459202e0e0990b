"""API keys: where they come from, and a way of keeping them that shows none."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from mindserve.config.paths import path_text
from mindserve.errors import StartupError

API_KEY_VARIABLE: Final = "MINDSERVE_API_KEY"
_KEY: Final = re.compile(r"[!-~]+")
"""What a header field can carry behind "Bearer "."""
_MAX_FILE_BYTES: Final = 1024 * 1024


class ApiKeys:
    """The keys of which a request must give one; only their digests are kept."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = tuple(dict.fromkeys(map(_digest, keys)))

    def knows(self, key: str) -> bool:
        """Takes as long for any ``key`` of its length."""
        digest, known = _digest(key), False
        for one in self._digests:
            known |= hmac.compare_digest(one, digest)
        return known

    def __repr__(self) -> str:
        return f"ApiKeys({len(self._digests)} keys)"


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def read_api_keys(file: Path | None, environ: Mapping[str, str]) -> ApiKeys | None:
    """Those of the file, one a line, and of the variable; None: there are none. Raises ``StartupError``."""
    keys = [] if file is None else _of_file(file)
    variable = environ.get(API_KEY_VARIABLE, "").strip()
    if variable:
        keys.append(_checked(variable, API_KEY_VARIABLE))
    return ApiKeys(keys) if keys else None


def _of_file(file: Path) -> list[str]:
    name = f"the API key file {path_text(file)}"
    try:
        with file.open("rb") as opened:
            data = opened.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise StartupError(f"{name} cannot be read: {error.strerror or error}") from error
    if len(data) > _MAX_FILE_BYTES:
        raise StartupError(f"{name} has more than {_MAX_FILE_BYTES} bytes")
    lines = enumerate(data.decode("utf-8", "replace").splitlines(), start=1)
    keys = [
        _checked(line.strip(), f"{name}, line {number}")
        for number, line in lines
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not keys:
        raise StartupError(f"{name} holds no key: each line that is not empty and no # comment is one")
    return keys


def _checked(key: str, place: str) -> str:
    """The text of the error does not show the key."""
    if not _KEY.fullmatch(key):
        raise StartupError(f"{place}: a key is made of visible ASCII characters without blanks")
    return key
