"""Random models that see or hear, with the tokenizer of ``tiny_models`` and the files that a real folder has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import torch
from transformers import (
    AutoModelForMultimodalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2AudioConfig,
    Qwen2AudioForConditionalGeneration,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    WhisperFeatureExtractor,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from tests import tiny_models

VISION_START, VISION_END, IMAGE, VIDEO, AUDIO, AUDIO_START, AUDIO_END = range(259, 266)
MEDIA_TOKENS: Final = (
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|AUDIO|>",
    "<|audio_bos|>",
    "<|audio_eos|>",
)
CHAT_TEMPLATE: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part.type == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif part.type == 'audio' %}<|audio_bos|><|AUDIO|><|audio_eos|>"
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MIN_PIXELS, MAX_PIXELS = 56 * 56, 28 * 28 * 64
AUDIO_SECONDS = 1
TOKENS_PER_SECOND: Final = 2

_ROPE: Final = {"rope_type": "default", "rope_theta": 10000.0}
_TEXT: Final[dict[str, Any]] = {
    **tiny_models._BASE,
    "num_hidden_layers": 2,
    "max_position_embeddings": 4096,
    "eos_token_id": tiny_models.IM_END,
}
_VISION_TOKENS: Final = {
    "image_token_id": IMAGE,
    "video_token_id": VIDEO,
    "vision_start_token_id": VISION_START,
    "vision_end_token_id": VISION_END,
}
_TWICE: Final = {"language_model.model.model.": "language_model.model."}
"""transformers 5.19 writes a part of the names of Qwen2-Audio's weights twice; published folders do not."""
NAMES: Final = ("qwen2_vl", "qwen2_5_vl", "qwen2_audio")


def build(name: str, folder: Path, *, seed: int = 11, **text: Any) -> Path:
    """Write the model ``name`` into ``folder`` and return it. ``text`` changes the config of its language model."""
    torch.manual_seed(seed)
    model = _MODELS[name]({**_TEXT, **text})
    tiny_models._enlarge_zeros(model)
    model.save_pretrained(folder)
    rename_weights(folder, _TWICE)
    tokenizer().save_pretrained(folder)
    processor(name).save_pretrained(folder)
    return folder


def load(folder: Path) -> Any:
    """transformers' model, float32."""
    return AutoModelForMultimodalLM.from_pretrained(folder, dtype=torch.float32)


def tokenizer() -> PreTrainedTokenizerFast:
    wrapped = tiny_models.tokenizer()
    wrapped.add_special_tokens({"extra_special_tokens": list(MEDIA_TOKENS)})
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def processor(name: str) -> Any:
    """transformers' own for the model's images or recordings."""
    if name == "qwen2_audio":
        return WhisperFeatureExtractor(feature_size=128, chunk_length=AUDIO_SECONDS)
    return Qwen2VLImageProcessorPil(size={"shortest_edge": MIN_PIXELS, "longest_edge": MAX_PIXELS})


def rename_weights(folder: Path, renamed: dict[str, str]) -> None:
    """Write a model's weights again, with other beginnings of their names."""
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    weights = {}
    for name, tensor in load_file(path).items():
        prefix = next((old for old in renamed if name.startswith(old)), "")
        weights[renamed.get(prefix, "") + name.removeprefix(prefix)] = tensor
    save_file(weights, path, metadata={"format": "pt"})


def change_json(path: Path, **changes: Any) -> None:
    """Set or (``None``) remove fields of a JSON file."""
    content = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def _sections(text: dict[str, Any]) -> list[int]:
    """Pairs of a head's numbers that turn with time, row and column."""
    pairs = text["hidden_size"] // text["num_attention_heads"] // 2
    return [pairs // 4, 3 * pairs // 8, 3 * pairs // 8]


def _vl(text: dict[str, Any]) -> PreTrainedModel:
    vision = {
        "depth": 3,
        "embed_dim": 32,
        "hidden_size": text["hidden_size"],
        "num_heads": 2,
        "mlp_ratio": 2,
        "initializer_range": 0.15,
    }
    text = {**text, "rope_parameters": {**_ROPE, "mrope_section": _sections(text)}}
    return Qwen2VLForConditionalGeneration(Qwen2VLConfig(**_parts(text, vision)))


def _vl_2_5(text: dict[str, Any]) -> PreTrainedModel:
    vision = {
        "depth": 3,
        "hidden_size": 32,
        "out_hidden_size": text["hidden_size"],
        "intermediate_size": 48,
        "num_heads": 2,
        "window_size": 56,
        "fullatt_block_indexes": [1],
        "tokens_per_second": TOKENS_PER_SECOND,
        "initializer_range": 0.15,
    }
    text = {**text, "rope_parameters": {**_ROPE, "mrope_section": _sections(text)}}
    return Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(**_parts(text, vision)))


def _parts(text: dict[str, Any], vision: dict[str, Any]) -> dict[str, Any]:
    tied = text.get("tie_word_embeddings", False)
    return {"text_config": text, "vision_config": vision, "tie_word_embeddings": tied, **_VISION_TOKENS}


def _audio(text: dict[str, Any]) -> PreTrainedModel:
    hearing = {
        "model_type": "qwen2_audio_encoder",
        "num_mel_bins": 128,
        "encoder_layers": 2,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 48,
        "d_model": 32,
        "max_source_positions": 50 * AUDIO_SECONDS,
        "initializer_range": 0.15,
    }
    text = {**text, "model_type": "qwen2", "rope_parameters": _ROPE}
    return Qwen2AudioForConditionalGeneration(
        Qwen2AudioConfig(text_config=text, audio_config=hearing, audio_token_index=AUDIO)
    )


_MODELS: Final = {"qwen2_vl": _vl, "qwen2_5_vl": _vl_2_5, "qwen2_audio": _audio}
