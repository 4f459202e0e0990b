"""What a model's files say about it beside its weights."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gguf import GGUFReader
from transformers import AutoConfig, PretrainedConfig

from mindserve_engine.interface import EngineError
from mindserve_engine.native.first_line import first_line
from mindserve_engine.native.models import chatglm
from mindserve_engine.native.models.gguf_config import complete_config, read_config
from mindserve_engine.native.models.rope import longest_context
from mindserve_engine.native.multimodal.facts import MediaFacts, read_media, takes_media
from mindserve_engine.native.weights.gguf_file import open_gguf

_END_OF_TURN: Final = "<|im_end|>"
"""Ends a message in ChatML templates; several models list only the end of text as their eos."""
_GGUF_EOS_KEYS: Final = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")


@dataclass(frozen=True, slots=True)
class ModelFacts:
    path: Path
    config: PretrainedConfig
    """The text model's config."""
    eos_token_ids: tuple[int, ...]
    default_top_k: int | None
    """``top_k`` of the folder's generation_config.json, else of its config.json; 0 keeps all candidates."""
    gguf: GGUFReader | None = None
    """The open file, when the model is one."""
    media: MediaFacts | None = None
    """Of a model that takes more than text."""

    @property
    def model_type(self) -> str:
        """The whole model's."""
        return str(self.config.model_type if self.media is None else self.media.config.model_type)

    @property
    def is_gguf(self) -> bool:
        return self.gguf is not None

    @property
    def max_positions(self) -> int | None:
        """The model's own limit of prompt and output, where it has one."""
        return longest_context(self.config)


def read_facts(path: Path, *, trust_remote_code: bool) -> ModelFacts:
    """Raises ``EngineError`` with one line for a path that is no model."""
    if path.is_file():
        return _gguf_facts(path)
    if not path.is_dir():
        raise EngineError(f"{path}: no such model folder or file")
    if not (path / "config.json").is_file():
        raise EngineError(f"{path}: no config.json in the model folder")
    config = _load_config(path, trust_remote_code=trust_remote_code)
    generation = _read_json(path / "generation_config.json")
    text_config = config.get_text_config()
    named = (generation, config.to_dict(), text_config.to_dict())
    eos = [token for one in named for token in _ids(one.get("eos_token_id"))] + [*_folder_end_of_turn(path, config)]
    media = read_media(path, config) if takes_media(config) else None
    if media is not None:
        own = getattr(text_config, "tie_word_embeddings", False)
        text_config.tie_word_embeddings = getattr(config, "tie_word_embeddings", own)
    return ModelFacts(
        path=path,
        config=text_config,
        eos_token_ids=_within(eos, text_config),
        default_top_k=_top_k(generation, _read_json(path / "config.json")),
        media=media,
    )


def _gguf_facts(path: Path) -> ModelFacts:
    reader = open_gguf(path)
    try:
        config = _gguf_config(path, reader)
        eos = _within([*_gguf_ends(reader), *_ids(config.eos_token_id)], config)
    except Exception as error:  # values of any type may stand under any key
        raise _unusable_config(path, error) from error
    return ModelFacts(path=path, config=config, eos_token_ids=eos, default_top_k=None, gguf=reader)


def _gguf_config(path: Path, reader: GGUFReader) -> PretrainedConfig:
    config = read_config(reader)
    if config is None:
        config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)
    complete_config(config, reader)
    return config


def _gguf_ends(reader: GGUFReader) -> Iterator[int]:
    for key in _GGUF_EOS_KEYS:
        if key in reader.fields:
            yield int(reader.fields[key].contents())
    if "tokenizer.ggml.tokens" in reader.fields:
        tokens = reader.fields["tokenizer.ggml.tokens"].contents()
        if _END_OF_TURN in tokens:
            yield tokens.index(_END_OF_TURN)


def _load_config(folder: Path, *, trust_remote_code: bool) -> PretrainedConfig:
    written = _read_json(folder / "config.json")
    try:
        if written.get("model_type") == chatglm.MODEL_TYPE:
            return chatglm.chatglm_config(written)
        return AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code, local_files_only=True)
    except Exception as error:  # whatever a strange file makes transformers raise
        raise _unusable_config(folder, error) from error


def _unusable_config(place: Path, error: Exception) -> EngineError:
    return EngineError(f"{place}: the model's config cannot be used ({first_line(error)})")


def _folder_end_of_turn(folder: Path, config: PretrainedConfig) -> Iterator[int]:
    if config.model_type == chatglm.MODEL_TYPE:
        try:
            yield from chatglm.ends_of_turn(folder, config)
        except ValueError as error:
            raise EngineError(f"{folder}: {error}") from error
    for token in _read_json(folder / "tokenizer.json").get("added_tokens", []):
        if token.get("content") == _END_OF_TURN:
            yield int(token["id"])


def _read_json(path: Path) -> dict[str, Any]:
    """The object in a file; empty when there is no file."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise EngineError(f"{path}: not valid JSON ({error})") from error
    return content if isinstance(content, dict) else {}


def _top_k(*files: dict[str, Any]) -> int | None:
    """The first that is there; 0, as transformers has it, and anything below keep all candidates."""
    found = (file["top_k"] for file in files if type(file.get("top_k")) is int)
    top_k = next(found, None)
    return None if top_k is None else max(top_k, 0)


def _ids(value: Any) -> list[int]:
    if value is None:
        return []
    return [int(token) for token in value] if isinstance(value, list | tuple) else [int(value)]


def _within(token_ids: Iterable[int], config: PretrainedConfig) -> tuple[int, ...]:
    return tuple(dict.fromkeys(token for token in token_ids if 0 <= token < config.vocab_size))
