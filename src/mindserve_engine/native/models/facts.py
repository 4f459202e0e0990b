"""What a model's files say about it beside its weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gguf import GGUFReader
from transformers import AutoConfig, PretrainedConfig

from mindserve_engine.first_line import first_line
from mindserve_engine.interface import EngineError
from mindserve_engine.media.facts import MediaFacts, read_media, takes_media
from mindserve_engine.model_folder import END_OF_TURN, default_top_k, eos_token_ids, read_object, token_ids, within
from mindserve_engine.native.models import chatglm
from mindserve_engine.native.models.gguf_config import complete_config, read_config
from mindserve_engine.native.models.rope import longest_context
from mindserve_engine.native.weights.gguf_file import open_gguf
from mindserve_engine.options import MAX_IMAGE_TOKENS

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


def read_facts(path: Path, *, trust_remote_code: bool, max_image_tokens: int = MAX_IMAGE_TOKENS) -> ModelFacts:
    """Raises ``EngineError`` with one line for a path that is no model."""
    if path.is_file():
        return _gguf_facts(path)
    if not path.is_dir():
        raise EngineError(f"{path}: no such model folder or file")
    if not (path / "config.json").is_file():
        raise EngineError(f"{path}: no config.json in the model folder")
    config = _load_config(path, trust_remote_code=trust_remote_code)
    text_config = config.get_text_config()
    eos = eos_token_ids(path, config.to_dict(), text_config.to_dict(), vocab_size=text_config.vocab_size)
    media = read_media(path, config, max_image_tokens) if takes_media(config) else None
    if media is not None:
        own = getattr(text_config, "tie_word_embeddings", False)
        text_config.tie_word_embeddings = getattr(config, "tie_word_embeddings", own)
    return ModelFacts(
        path=path,
        config=text_config,
        eos_token_ids=within([*eos, *_chatglm_ends(path, config)], text_config.vocab_size),
        default_top_k=default_top_k(path),
        media=media,
    )


def _gguf_facts(path: Path) -> ModelFacts:
    reader = open_gguf(path)
    try:
        config = _gguf_config(path, reader)
        eos = within([*_gguf_ends(reader), *token_ids(config.eos_token_id)], config.vocab_size)
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
        if END_OF_TURN in tokens:
            yield tokens.index(END_OF_TURN)


def _load_config(folder: Path, *, trust_remote_code: bool) -> PretrainedConfig:
    written = read_object(folder / "config.json")
    try:
        if written.get("model_type") == chatglm.MODEL_TYPE:
            return chatglm.chatglm_config(written, folder)
        return AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code, local_files_only=True)
    except Exception as error:  # whatever a strange file makes transformers raise
        raise _unusable_config(folder, error) from error


def _unusable_config(place: Path, error: Exception) -> EngineError:
    return EngineError(f"{place}: the model's config cannot be used ({first_line(error)})")


def _chatglm_ends(folder: Path, config: PretrainedConfig) -> tuple[int, ...]:
    if config.model_type != chatglm.MODEL_TYPE:
        return ()
    try:
        return tuple(chatglm.ends_of_turn(folder, config))
    except ValueError as error:
        raise EngineError(f"{folder}: {error}") from error
