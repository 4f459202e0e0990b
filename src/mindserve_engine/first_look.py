"""A look into the folder of a model that sees or hears, before anything that takes long is imported, started or read.

Loading such a model takes minutes; that a file of its processor is missing, or that a shard was not copied to its end,
can be told at once. What a file means is read later; here it is there, whole, and of its form.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mindserve_engine.interface import EngineError

CONFIG: Final = "config.json"
PROCESSOR: Final = "preprocessor_config.json"
WHOLE_PROCESSOR: Final = "processor_config.json"
"""Newer folders have the parts of a processor in one file."""
VIDEO_PROCESSOR: Final = "video_preprocessor_config.json"
"""Older folders have none: theirs for images is meant for videos too."""
SINGLE: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"

USES: Final = {
    "qwen2_vl": "needs it for the size and the normalisation of images",
    "qwen2_5_vl": "needs it for the size and the normalisation of images",
    "qwen2_audio": "needs it for the rate and the length of recordings",
}
"""By model type: what the file of the processor is for."""
_OBJECTS: Final = (
    PROCESSOR,
    WHOLE_PROCESSOR,
    VIDEO_PROCESSOR,
    "generation_config.json",
    "tokenizer_config.json",
    "tokenizer.json",
    "chat_template.json",
)
"""Files with a JSON object, where they are there."""
_TOKENIZER: Final = "tokenizer.json"
_OLDER_TOKENIZER: Final = ("vocab.json", "merges.txt")
"""Of which one is nothing without the other."""
_LENGTH_BYTES: Final = 8
"""Before the header of a safetensors file: its length, little-endian."""
_MAX_HEADER_BYTES: Final = 100_000_000


def look_at(folder: Path) -> None:
    """Raises ``EngineError`` with one line that names the file which is missing or broken. Other models than those that
    take media, and what is no folder, are left to those who load them."""
    config = folder / CONFIG
    if not config.is_file() or (model_type := read_object(config).get("model_type")) not in USES:
        return
    for name in _OBJECTS:
        if (folder / name).is_file():
            read_object(folder / name)
    require_processor(folder, model_type)
    if not (folder / _TOKENIZER).is_file():
        _require_older_tokenizer(folder)
    for path in weight_files(folder):
        _check_whole(path)


def require_processor(folder: Path, model_type: str) -> None:
    """Raises ``EngineError``."""
    if not any((folder / name).is_file() for name in (PROCESSOR, WHOLE_PROCESSOR)):
        raise EngineError(f"{folder}: no {PROCESSOR} in the model folder; a {model_type} model {USES[model_type]}")


def _require_older_tokenizer(folder: Path) -> None:
    there = [name for name in _OLDER_TOKENIZER if (folder / name).is_file()]
    missing = [name for name in _OLDER_TOKENIZER if name not in there] if there else [_TOKENIZER]
    if missing:
        raise EngineError(f"{folder}: no {missing[0]} in the model folder; there is no tokenizer without it")


def read_object(path: Path) -> dict[str, Any]:
    """Raises ``EngineError``."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise EngineError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(content, dict):
        raise EngineError(f"{path}: not a JSON object")
    return content


def weight_files(folder: Path) -> list[Path]:
    """Of one model: a single file, or those that the index names. Raises ``EngineError``."""
    index = folder / INDEX
    if index.is_file():
        try:
            weight_map: dict[str, str] = json.loads(index.read_bytes())["weight_map"]
            return [folder / name for name in sorted(set(weight_map.values()))]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise EngineError(f"{index}: not a safetensors index ({error})") from error
    single = folder / SINGLE
    if not single.is_file():
        raise EngineError(f"{folder}: neither {SINGLE} nor {INDEX} is there; weights must be in safetensors format")
    return [single]


def missing_shard(path: Path) -> EngineError:
    return EngineError(f"{path}: the index names this file, but it does not exist")


def _check_whole(path: Path) -> None:
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            header = json.loads(file.read(min(length, _MAX_HEADER_BYTES)))
        end = _LENGTH_BYTES + length + max(_ends(header), default=0)
    except FileNotFoundError as error:
        raise missing_shard(path) from error
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise EngineError(
            f"{path}: not a readable safetensors file (its header is no JSON object of tensors)"
        ) from error
    if size != end:
        raise EngineError(f"{path}: not a whole safetensors file: it has {size} bytes, its header tells of {end}")


def _ends(header: dict[str, Any]) -> Iterator[int]:
    """Where each tensor ends, from the end of the header."""
    return (int(entry["data_offsets"][1]) for name, entry in header.items() if name != "__metadata__")
