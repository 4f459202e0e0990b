"""What the JSON files of a model's folder say of generating, whichever engine runs the model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from mindserve_engine.interface import EngineError
from mindserve_engine.types import MediaModel

END_OF_TURN: Final = "<|im_end|>"
"""Ends a message in ChatML templates; several models list only the end of text as their eos."""


def read_object(path: Path) -> dict[str, Any]:
    """The object in a file; empty when there is no file. Raises ``EngineError`` for what is no JSON."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise EngineError(f"{path}: not valid JSON ({error})") from error
    return content if isinstance(content, dict) else {}


_PLACEHOLDERS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "qwen2_vl": {"image_token_id": ("image_token_id",), "video_token_id": ("video_token_id",)},
    "qwen2_5_vl": {"image_token_id": ("image_token_id",), "video_token_id": ("video_token_id",)},
    "qwen2_audio": {"audio_token_id": ("audio_token_id", "audio_token_index")},
}
"""By model type: fields of ``MediaModel``, and what config.json calls them, older files last."""


def media_placeholders(folder: Path) -> MediaModel | None:
    """The placeholders alone, known before anything is loaded. ``None``: config.json does not name all that a model of
    its type has, or the type is none of those whose media are known. Raises ``EngineError``."""
    config = read_object(folder / "config.json")
    names = _PLACEHOLDERS.get(str(config.get("model_type")))
    if names is None:
        return None
    found: dict[str, Any] = {
        field: next((config[key] for key in keys if key in config), None) for field, keys in names.items()
    }
    return MediaModel(**found) if all(type(token_id) is int for token_id in found.values()) else None


def eos_token_ids(folder: Path, *configs: Mapping[str, Any], vocab_size: int) -> tuple[int, ...]:
    """Every token that ends a sequence: those of generation_config.json, those of the model's ``configs`` (the whole
    one's, the text part's), and the end of a ChatML turn."""
    named = (read_object(folder / "generation_config.json"), *configs)
    told = [token for one in named for token in token_ids(one.get("eos_token_id"))]
    return within([*told, *_end_of_turn(folder)], vocab_size)


def default_top_k(folder: Path) -> int | None:
    """``top_k`` of generation_config.json, else of config.json; 0, as transformers has it, and anything below keep all
    candidates."""
    files = (read_object(folder / name) for name in ("generation_config.json", "config.json"))
    top_k = next((file["top_k"] for file in files if type(file.get("top_k")) is int), None)
    return None if top_k is None else max(top_k, 0)


def token_ids(value: Any) -> list[int]:
    """A setting that names one token, several or none."""
    if value is None:
        return []
    return [int(token) for token in value] if isinstance(value, list | tuple) else [int(value)]


def within(ids: list[int], vocab_size: int) -> tuple[int, ...]:
    """Each once, without those that are no tokens."""
    return tuple(dict.fromkeys(token for token in ids if 0 <= token < vocab_size))


def _end_of_turn(folder: Path) -> Iterator[int]:
    for token in read_object(folder / "tokenizer.json").get("added_tokens", []):
        if token.get("content") == END_OF_TURN:
            yield int(token["id"])
