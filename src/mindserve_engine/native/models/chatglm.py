"""The config of ChatGLM models (ChatGLM3, GLM-4 in its first form), whose folders bring code instead of a
type that transformers knows: read here, nothing of it is run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from sentencepiece import SentencePieceProcessor
from transformers import PretrainedConfig

from mindserve_engine.native.models.rope import INTERPOLATION
from mindserve_engine.native.weights.source import DTYPES

MODEL_TYPE: Final = "chatglm"
TURNED_SHARE: Final = 0.5
"""Of each head: the other half knows no positions."""
_ROPE_THETA: Final = 10000.0
_CODE: Final = "modeling_chatglm.py"
_DIVISION: Final = re.compile(r"/\s*self\.rope_ratio\b")
_DIVIDING_NAME: Final = "chatglm2"
_SIZES: Final = {
    "num_layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "ffn_hidden_size": "intermediate_size",
    "num_attention_heads": "num_attention_heads",
    "padded_vocab_size": "vocab_size",
    "seq_length": "max_position_embeddings",
    "multi_query_group_num": "num_key_value_heads",
}
_ONLY: Final[dict[str, tuple[Any, Any]]] = {
    "multi_query_attention": (False, True),
    "rmsnorm": (True, True),
    "post_layer_norm": (True, True),
    "apply_residual_connection_post_layernorm": (False, False),
    "original_rope": (True, True),
    "add_bias_linear": (False, False),
    "quantization_bit": (0, 0),
    "pre_seq_len": (None, None),
    "quantization_config": (None, None),
    "vision_config": (None, None),
}
"""What stands for a key that is not there, and the one value that is computed here."""
_KEPT: Final = ("eos_token_id", "pad_token_id")
_NUM_BEFORE_USER: Final = 6
"""The special tokens follow the vocabulary in a fixed order: [MASK] [gMASK] [sMASK] sop eop, then those of the roles
system, user, assistant and observation."""
_NUM_BEFORE_OBSERVATION: Final = 8


def chatglm_config(written: dict[str, Any], folder: Path) -> PretrainedConfig:
    """The lean decoder's config of what stands in the config.json of ``folder``. Raises ``ValueError`` naming the
    key."""
    sizes = {name: _size(written, key) for key, name in _SIZES.items()}
    for key, (absent, needed) in _ONLY.items():
        value = written.get(key, absent)
        if value != needed:
            raise ValueError(f"{key} is {value!r}, only {needed!r} is supported")
    heads, kv_heads = sizes["num_attention_heads"], sizes["num_key_value_heads"]
    if heads % kv_heads:
        raise ValueError(f"num_attention_heads, {heads}, is no multiple of multi_query_group_num, {kv_heads}")
    head_dim = _size(written, "kv_channels") if "kv_channels" in written else sizes["hidden_size"] // heads
    if head_dim % 4:
        raise ValueError(f"kv_channels is {head_dim}, no multiple of 4")
    return PretrainedConfig(
        model_type=MODEL_TYPE,
        hidden_act="silu",
        **sizes,
        head_dim=head_dim,
        rms_norm_eps=_positive(written, "layernorm_epsilon"),
        rope_parameters={
            "rope_type": "default",
            "partial_rotary_factor": TURNED_SHARE,
            **_rope(_positive({"rope_ratio": 1.0, **written}, "rope_ratio"), written, folder),
        },
        attention_bias=bool(written.get("add_qkv_bias", False)),
        tie_word_embeddings=bool(written.get("tie_word_embeddings", False)),
        **{key: written[key] for key in _KEPT if key in written},
        dtype=_dtype(written),
    )


def _dtype(written: dict[str, Any]) -> str | None:
    """Under either name that transformers has had for it."""
    name = written.get("dtype", written.get("torch_dtype"))
    return name if isinstance(name, str) and name in DTYPES else None


def _rope(ratio: float, written: dict[str, Any], folder: Path) -> dict[str, float]:
    """What ``rope_ratio`` means is in no config: ChatGLM2 divides positions by it, ChatGLM3 and GLM-4 multiply the base
    of the frequencies. The code in the folder tells, which is read and not run; else the name that the config has."""
    code = folder / _CODE
    if code.is_file():
        divides = _DIVISION.search(code.read_text(errors="replace")) is not None
    else:
        divides = _DIVIDING_NAME in str(written.get("_name_or_path", "")).lower()
    if divides:
        return {"rope_theta": _ROPE_THETA, INTERPOLATION: ratio}
    return {"rope_theta": _ROPE_THETA * ratio}


def ends_of_turn(folder: Path, config: PretrainedConfig) -> list[int]:
    """Tokens with which an answer ends beside the config's: the user's turn and that of a tool's result begin."""
    vocabulary = folder / "tokenizer.model"
    if isinstance(config.eos_token_id, list) or not vocabulary.is_file():
        return []  # GLM-4 names all of them; its vocabulary is of another kind
    try:
        size = SentencePieceProcessor(model_file=str(vocabulary)).vocab_size()
    except (RuntimeError, OSError) as error:
        raise ValueError("tokenizer.model is no SentencePiece model") from error
    return [size + _NUM_BEFORE_USER, size + _NUM_BEFORE_OBSERVATION]


def _size(written: dict[str, Any], key: str) -> int:
    value = written.get(key)
    if type(value) is not int or value < 1:
        raise ValueError(f"{key} is {'missing' if key not in written else repr(value)}, it must be an integer above 0")
    return value


def _positive(written: dict[str, Any], key: str) -> float:
    value = written.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError(f"{key} is {'missing' if key not in written else repr(value)}, it must be a number above 0")
    return float(value)
