"""A real Qwen2.5 tokenizer and chat template: the beginning of Qwen2.5-Coder-1.5B-Instruct (Apache-2.0) as a GGUF file.

It holds all of the file's metadata and some of its weights. `make test-model` puts it into the user's cache.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import pytest
from rich.console import Console
from transformers import AutoConfig, AutoModelForCausalLM

from mindserve.chat.gguf_tokenizer import load_gguf_tokenizer
from mindserve.chat.tokenizer import ChatTokenizer, load_tokenizer
from mindserve.cli.fetch import fetch_model
from mindserve.config.packaged import QWEN25_CODER, PackagedModel
from mindserve_engine.native.process import NativeEngine
from mindserve_engine.options import EngineOptions
from mindserve_engine.user_cache import cache_folder
from tests.serving import Model

_FIRST: Final = QWEN25_CODER.parts[0]
QWEN_HEAD: Final = PackagedModel(
    title="Qwen2.5-Coder-1.5B-Instruct",
    file_name="Qwen2.5-Coder-1.5B-Instruct.head.gguf",
    sha256=_FIRST.sha256,
    parts=(_FIRST,),
)


def qwen_file() -> Path:
    """Without the file the test is skipped, in CI it fails."""
    path = cache_folder(os.environ) / QWEN_HEAD.file_name
    if not path.is_file():
        missing = f"there is no {path}: run `make test-model`"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    return path


def write_tiny_qwen(folder: Path) -> Path:
    """A model folder with this tokenizer, and tiny random weights."""
    tokenizer: Any = load_gguf_tokenizer(qwen_file())
    tokenizer.save_pretrained(folder)
    config = AutoConfig.for_model(
        "qwen2",
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


class ToldEngine(NativeEngine):
    """Knows the vocabulary from the start on, as behind ``mindserve serve``."""

    def __init__(self, options: EngineOptions, tokenizer: ChatTokenizer) -> None:
        super().__init__(options)
        self._tokenizer = tokenizer

    async def start(self) -> None:
        await super().start()
        self.learn(self._tokenizer.vocabulary(self.info.eos_token_ids))


def told_model(folder: Path) -> Model:
    """The model of ``write_tiny_qwen`` behind an engine that follows grammars."""
    tokenizer = load_tokenizer(folder)
    options = EngineOptions(model_path=folder, dtype="float32", num_threads=1, kv_memory_gb=0.05, block_size=16)
    return Model(ToldEngine(options, tokenizer), tokenizer)


if __name__ == "__main__":
    print(fetch_model(QWEN_HEAD, cache_folder(os.environ), Console(stderr=True)))
