"""The tokenizer that belongs to a script, written as a model folder so that it is loaded like any other model's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from mindserve_engine.scripted.script import Script, load_script
from mindserve_engine.scripted.vocabulary import SPECIAL_TOKENS, TURN_END, Vocabulary

MODEL_TYPE: Final = "scripted"

CHAT_TEMPLATE: Final = (
    "{% if tools %}<|im_start|>tools\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_model(script_path: Path, directory: Path) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json`` for the script at ``script_path`` into ``directory``.

    Text is tokenised into its UTF-8 bytes, one token each; the script's pieces are tokens that only generation
    produces. Raises ``ScriptError``.
    """
    script = load_script(script_path)
    vocabulary = Vocabulary(script)
    _write(directory / "tokenizer.json", _tokenizer(vocabulary))
    _write(directory / "tokenizer_config.json", _tokenizer_config(script))


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1), "utf-8")


def _tokenizer(vocabulary: Vocabulary) -> dict[str, Any]:
    """A byte-level BPE without merges, in the format of the tokenizers library."""
    alphabet = _byte_alphabet()
    special = {token.encode() for token in SPECIAL_TOKENS}
    vocab = {
        token.decode() if token in special else "".join(alphabet[byte] for byte in token): token_id
        for token_id, token in enumerate(vocabulary.tokens)
    }
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added_token(vocabulary.id_of(token), token) for token in SPECIAL_TOKENS],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": [],
        },
    }


def _added_token(token_id: int, token: str) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token_id, "content": token, **flags, "special": True}


def _tokenizer_config(script: Script) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": TURN_END,
        "clean_up_tokenization_spaces": False,
        "model_max_length": script.max_context,
        "chat_template": script.chat_template or CHAT_TEMPLATE,
    }


def _byte_alphabet() -> list[str]:
    """The character that stands for each byte in a byte-level vocabulary: itself if printable, else one from 256 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    characters = {byte: chr(byte) for byte in printable}
    characters.update({byte: chr(256 + number) for number, byte in enumerate(others)})
    return [characters[byte] for byte in range(256)]
