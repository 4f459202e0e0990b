"""The suite's own media, as requests hold them.

``{media: picture.png}`` stands for the file of ``media/`` as a data: URL. ``as`` gives it another MIME type, or with
``base64`` leaves the bare Base64; ``first`` cuts it off after so many bytes.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from conformance.files import PACKAGE, SuiteError

KEYS: Final = frozenset({"media", "as", "first"})
_FILES: Final = PACKAGE / "media"
_TYPES: Final = {
    "jpg": "image/jpeg",
    "png": "image/png",
    "mp4": "video/mp4",
    "avi": "video/x-msvideo",
    "wmv": "video/x-ms-wmv",
    "mp3": "audio/mpeg",
    "wav": "audio/x-wav",
    "flac": "audio/flac",
}
"""Tables 1 to 3 of the document."""
_BARE: Final = "base64"


def is_short_form(value: Mapping[str, Any]) -> bool:
    """Whether it stands for a file, and is no part of a request."""
    return "media" in value and value.keys() <= KEYS


def written_out(value: Mapping[str, Any]) -> str:
    """What a short form stands for. Raises ``SuiteError`` for a file that is not there."""
    name = value["media"]
    try:
        data = (_FILES / name).read_bytes()
    except OSError as error:
        raise SuiteError(f"there is no file {name} in {_FILES}") from error
    encoded = base64.b64encode(data[: value.get("first")]).decode("ascii")
    label = value.get("as", _TYPES[name.rpartition(".")[2]])
    return encoded if label == _BARE else f"data:{label};base64,{encoded}"
