"""The tokenizer that belongs to a script, written as a model folder so that it is loaded like any other model's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from mindserve_engine.scripted.script import Script, load_script
from mindserve_engine.scripted.vocabulary import AUDIO, IMAGE, TURN_END, VIDEO, Vocabulary, special_tokens
from mindserve_engine.types import MediaModel

MODEL_TYPE: Final = "scripted"

CHAT_TEMPLATE: Final = (
    "{% if tools %}<|im_start|>tools\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string or not message.content %}{{ message.content }}"
    "{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part.type == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif part.type == 'audio' %}<|audio_bos|><|AUDIO|><|audio_eos|>"
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}"
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
    _write(directory / "tokenizer.json", _tokenizer(vocabulary, special_tokens(script)))
    _write(directory / "tokenizer_config.json", _tokenizer_config(script))


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1), "utf-8")


def media_model(vocabulary: Vocabulary) -> MediaModel:
    """What the pretended model takes: as Qwen2-VL does of images and videos, as Qwen2-Audio does of recordings."""
    return MediaModel(
        image_token_id=vocabulary.id_of(IMAGE),
        video_token_id=vocabulary.id_of(VIDEO),
        audio_token_id=vocabulary.id_of(AUDIO),
        patch_size=14,
        merge_size=2,
        frames_per_patch=2,
        min_pixels=56 * 56,
        max_pixels=28 * 28 * 1280,
        sample_rate=16_000,
        samples_per_frame=160,
        max_samples=480_000,
    )


def _tokenizer(vocabulary: Vocabulary, special_tokens: tuple[str, ...]) -> dict[str, Any]:
    """A byte-level BPE without merges, in the format of the tokenizers library."""
    alphabet = _byte_alphabet()
    special = {token.encode() for token in special_tokens}
    vocab = {
        token.decode() if token in special else "".join(alphabet[byte] for byte in token): token_id
        for token_id, token in enumerate(vocabulary.tokens)
    }
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added_token(vocabulary.id_of(token), token) for token in special_tokens],
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
