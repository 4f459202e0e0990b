"""Random models of a few thousand parameters, saved as transformers folders with a tokenizer and a chat template.

Their weights are large enough that greedy output varies from token to token: a mistake in any layer changes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

VOCAB_SIZE: Final = 300
IM_START: Final = 257
IM_END: Final = 258
CHAT_TEMPLATE: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_BASE: Final[dict[str, Any]] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": IM_END,
    "pad_token_id": 256,
}
_LLAMA3_ROPE: Final = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_YARN_ROPE: Final = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
}
_GEMMA: Final = {
    "head_dim": 16,
    "sliding_window": 24,
    "query_pre_attn_scalar": 16,
    "tie_word_embeddings": False,
}

LEAN: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "llama": ("llama", {"tie_word_embeddings": True}),
    "llama-untied-biased": ("llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 24}),
    "llama-linear-rope": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}}),
    "llama-dynamic-rope": ("llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}),
    "llama-llama3-rope": ("llama", {"rope_parameters": _LLAMA3_ROPE}),
    "mistral": ("mistral", {"sliding_window": None}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen2-yarn-rope": ("qwen2", {"rope_parameters": _YARN_ROPE}),
    "qwen3": ("qwen3", {"head_dim": 32, "tie_word_embeddings": True}),
    "qwen3-all-heads": ("qwen3", {"num_key_value_heads": 4, "head_dim": 16}),
}
"""Models of the lean decoder's families: name -> (model type, changes to the base config)."""

GENERIC: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "gemma2": (
        "gemma2",
        {**_GEMMA, "attn_logit_softcapping": 5.0},
    ),
    "gemma3": ("gemma3_text", _GEMMA),
    "gpt-neox": ("gpt_neox", {}),
    "gpt-oss": ("gpt_oss", {"head_dim": 16, "sliding_window": 24, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "llama-gelu": ("llama", {"hidden_act": "gelu"}),
    "mistral-window": ("mistral", {"sliding_window": 24}),
    "mixtral": ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "opt": ("opt", {"ffn_dim": 96, "word_embed_proj_dim": 64, "init_std": 0.3}),
    "phi": ("phi", {}),
    "phi3": ("phi3", {}),
    "qwen2-window": ("qwen2", {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1}),
    "stablelm": ("stablelm", {}),
}
"""Models that take the path through transformers' own modules."""

UNSUPPORTED: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "bloom": ("bloom", {"n_layer": 2, "n_head": 4}),
    "mamba": ("mamba", {"state_size": 8, "expand": 2}),
}
"""Models without attention that could be put over a paged cache."""

ALL: Final = {**LEAN, **GENERIC, **UNSUPPORTED}


def build(name: str, folder: Path, *, seed: int = 7, shard_bytes: int | str = "1GB", **sizes: int) -> Path:
    """Write the model ``name`` into ``folder`` (made when missing) and return it. ``sizes`` replace its config's."""
    model_type, changes = ALL[name]
    torch.manual_seed(seed)
    config = AutoConfig.for_model(model_type, **{**_BASE, **changes, **sizes})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    _enlarge_zeros(model)
    model.save_pretrained(folder, max_shard_size=shard_bytes)
    tokenizer().save_pretrained(folder)
    return folder


def tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte, and the special tokens of ChatML."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={character: number for number, character in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|im_end|>", pad_token="<|endoftext|>", model_max_length=512
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def _enlarge_zeros(model: torch.nn.Module) -> None:
    """Biases start as zeros and norms as ones, where a mistake would not show."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * (0.2 if "norm" in name else 0.3))
