"""A random model of ChatGLM3's architecture, in the published layout of files, and its arithmetic written out.

Nothing here is the project's: the architecture is computed on whole sequences, with complex numbers where the model
turns neighbouring pairs, and the tokenizer is the SentencePiece library's own."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from torch import Tensor
from torch.nn import functional

SPECIAL: Final = (
    *("[MASK]", "[gMASK]", "[sMASK]", "sop", "eop"),
    *("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
)
"""The tokenizer's class numbers them behind the vocabulary, in this order."""
CONFIG: Final[dict[str, Any]] = {
    "architectures": ["ChatGLMModel"],
    "auto_map": {
        "AutoConfig": "configuration_chatglm.ChatGLMConfig",
        "AutoModel": "modeling_chatglm.ChatGLMForConditionalGeneration",
        "AutoModelForCausalLM": "modeling_chatglm.ChatGLMForConditionalGeneration",
    },
    "model_type": "chatglm",
    "add_bias_linear": False,
    "add_qkv_bias": True,
    "apply_query_key_layer_scaling": True,
    "apply_residual_connection_post_layernorm": False,
    "attention_dropout": 0.0,
    "attention_softmax_in_fp32": True,
    "bias_dropout_fusion": True,
    "eos_token_id": 2,
    "ffn_hidden_size": 80,
    "fp32_residual_connection": False,
    "hidden_dropout": 0.0,
    "hidden_size": 64,
    "kv_channels": 16,
    "layernorm_epsilon": 1e-5,
    "multi_query_attention": True,
    "multi_query_group_num": 2,
    "num_attention_heads": 4,
    "num_layers": 3,
    "original_rope": True,
    "pad_token_id": 0,
    "padded_vocab_size": 640,
    "post_layer_norm": True,
    "pre_seq_len": None,
    "prefix_projection": False,
    "quantization_bit": 0,
    "rmsnorm": True,
    "seq_length": 1024,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "use_cache": True,
}
_WORDS: Final = """people aesop sop eop the weather in Beijing is sunny tool_call city name get_current_weather user
system assistant observation 北京 今天 天气 怎么样 你好 def return python json {} [] () = ' " , . : ? ! 0 1 2 3 < | >"""
TOKENIZER_CONFIG: Final = {
    "tokenizer_class": "ChatGLMTokenizer",
    "auto_map": {"AutoTokenizer": ["tokenization_chatglm.ChatGLMTokenizer", None]},
    "do_lower_case": False,
    "remove_space": False,
}
VARIANTS: Final[dict[str, dict[str, Any]]] = {
    "chatglm3": {},
    "chatglm3-32k": {"rope_ratio": 50, "seq_length": 4096},
    "chatglm2-32k": {"rope_ratio": 50, "seq_length": 4096, "_name_or_path": "THUDM/chatglm2-6b-32k"},
    "one group, wide heads": {"kv_channels": 24, "multi_query_group_num": 1},
    "no bias": {"add_qkv_bias": False},
    "tied": {"tie_word_embeddings": True},
}


def build(folder: Path, *, seed: int = 3, num_shards: int = 1, **changes: Any) -> Path:
    """Write the model into ``folder`` (made when missing) and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {**CONFIG, **changes}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENIZER_CONFIG))
    write_vocabulary(folder / "tokenizer.model")
    weights = random_weights(config, seed)
    if num_shards == 1:
        save_file(weights, folder / "model.safetensors")
        return folder
    names = sorted(weights)
    files = {
        name: f"model-{1 + place % num_shards:05}-of-{num_shards:05}.safetensors" for place, name in enumerate(names)
    }
    for file in set(files.values()):
        save_file({name: weights[name] for name in names if files[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    return folder


def write_vocabulary(path: Path, **changes: Any) -> SentencePieceProcessor:
    """A vocabulary of the published kind: byte pairs, bytes for what no piece holds, text as it is."""
    SentencePieceTrainer.train(
        sentence_iterator=iter(_sentences()),
        model_prefix=str(path.with_suffix("")),
        minloglevel=2,
        **{
            "vocab_size": 560,
            "model_type": "bpe",
            "byte_fallback": True,
            "normalization_rule_name": "identity",
            "remove_extra_whitespaces": False,
            "character_coverage": 1.0,
            "num_threads": 1,
            **changes,
        },
    )
    path.with_suffix(".vocab").unlink()
    return SentencePieceProcessor(model_file=str(path))


def _sentences() -> list[str]:
    """The words "sop" and "eop" stand among them, as in the published vocabulary."""
    words = _WORDS.split()
    pick = random.Random(5)
    return [" ".join(pick.choices(words, k=12)) for _ in range(400)]


def random_weights(config: dict[str, Any], seed: int) -> dict[str, Tensor]:
    """Large enough that every mistake in a layer changes what comes out."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, mean: float = 0.0) -> Tensor:
        return torch.randn(*shape, generator=generator) * 0.3 + mean

    hidden, inner, dim = config["hidden_size"], config["ffn_hidden_size"], config["kv_channels"]
    width, groups = config["num_attention_heads"] * dim, config["multi_query_group_num"] * dim
    weights = {
        "transformer.embedding.word_embeddings.weight": normal(config["padded_vocab_size"], hidden),
        "transformer.encoder.final_layernorm.weight": normal(hidden, mean=1.0),
        "transformer.rotary_pos_emb.inv_freq": normal(dim // 4),
    }
    if not config["tie_word_embeddings"]:
        weights["transformer.output_layer.weight"] = normal(config["padded_vocab_size"], hidden)
    for number in range(config["num_layers"]):
        layer = {
            "input_layernorm.weight": normal(hidden, mean=1.0),
            "post_attention_layernorm.weight": normal(hidden, mean=1.0),
            "self_attention.query_key_value.weight": normal(width + 2 * groups, hidden),
            "self_attention.dense.weight": normal(hidden, width),
            "mlp.dense_h_to_4h.weight": normal(2 * inner, hidden),
            "mlp.dense_4h_to_h.weight": normal(hidden, inner),
        }
        if config["add_qkv_bias"]:
            layer["self_attention.query_key_value.bias"] = normal(width + 2 * groups)
        weights |= {f"transformer.encoder.layers.{number}.{name}": tensor for name, tensor in layer.items()}
    return weights


class Reference:
    """The architecture as its authors describe it, one whole sequence at a time, in float32."""

    def __init__(self, folder: Path, *, seed: int = 3) -> None:
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        self.weights = random_weights(self.config, seed)

    def logits(self, ids: list[int]) -> Tensor:
        """[T, vocabulary]."""
        embedding = self._weight("embedding.word_embeddings.weight")
        hidden = embedding[torch.tensor(ids)]
        for number in range(self.config["num_layers"]):
            prefix = f"encoder.layers.{number}."
            hidden = hidden + self._attention(prefix, self._norm(prefix + "input_layernorm", hidden))
            hidden = hidden + self._mlp(prefix, self._norm(prefix + "post_attention_layernorm", hidden))
        head = embedding if self.config["tie_word_embeddings"] else self._weight("output_layer.weight")
        return self._norm("encoder.final_layernorm", hidden) @ head.T

    def greedy(self, prompt: list[int], num_tokens: int) -> list[int]:
        """Ends early where the two best tokens are too close to tell apart."""
        ids = list(prompt)
        for _ in range(num_tokens):
            best = self.logits(ids)[-1].topk(2)
            if best.values[0] - best.values[1] < 1e-3:
                break
            ids.append(int(best.indices[0]))
        return ids[len(prompt) :]

    def _weight(self, name: str) -> Tensor:
        return self.weights[f"transformer.{name}"]

    def _norm(self, name: str, x: Tensor) -> Tensor:
        scale = (x.pow(2).mean(-1, keepdim=True) + self.config["layernorm_epsilon"]).rsqrt()
        return x * scale * self._weight(f"{name}.weight")

    def _attention(self, prefix: str, x: Tensor) -> Tensor:
        heads, groups, dim = (
            self.config[key] for key in ("num_attention_heads", "multi_query_group_num", "kv_channels")
        )
        mixed = x @ self._weight(prefix + "self_attention.query_key_value.weight").T
        if self.config["add_qkv_bias"]:
            mixed = mixed + self._weight(prefix + "self_attention.query_key_value.bias")
        query, key, value = mixed.view(len(x), -1, dim).split([heads, groups, groups], dim=1)
        query, key = self._turned(query), self._turned(key)
        key, value = (one.repeat_interleave(heads // groups, dim=1) for one in (key, value))
        scores = torch.einsum("qhd,khd->hqk", query, key) / dim**0.5
        future = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
        shares = scores.masked_fill(future, float("-inf")).softmax(-1)
        joined = torch.einsum("hqk,khd->qhd", shares, value).flatten(1)
        return joined @ self._weight(prefix + "self_attention.dense.weight").T

    def _turned(self, x: Tensor) -> Tensor:
        """Neighbours in the first half of each head are one complex number, turned by its position."""
        half = x.shape[-1] // 2
        ratio = self.config.get("rope_ratio", 1)
        is_second = "chatglm2" in self.config.get("_name_or_path", "")
        base, step = (10000.0, 1 / ratio) if is_second else (10000.0 * ratio, 1.0)
        angles = step * torch.arange(len(x))[:, None] * base ** (-torch.arange(0, half, 2) / half)
        pairs = torch.view_as_complex(x[..., :half].unflatten(-1, (-1, 2)).contiguous())
        turned = torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)[:, None]).flatten(-2)
        return torch.cat([turned, x[..., half:]], dim=-1)

    def _mlp(self, prefix: str, x: Tensor) -> Tensor:
        gate, up = (x @ self._weight(prefix + "mlp.dense_h_to_4h.weight").T).chunk(2, dim=-1)
        return (functional.silu(gate) * up) @ self._weight(prefix + "mlp.dense_4h_to_h.weight").T


class ReferenceTokenizer:
    """As the class that belongs to the model's files numbers things, over the SentencePiece library."""

    def __init__(self, folder: Path) -> None:
        self.pieces = SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
        self.special = {text: self.pieces.vocab_size() + place for place, text in enumerate(SPECIAL)}

    def turn(self, role: str, text: str, metadata: str = "") -> list[int]:
        """A turn's text is encoded apart from the line of its head."""
        head: list[int] = self.pieces.encode(f"{metadata}\n")
        content: list[int] = self.pieces.encode(text)
        return [self.special[f"<|{role}|>"], *head, *content]

    def prompt(self, *turns: list[int]) -> list[int]:
        opening = [self.special["[gMASK]"], self.special["sop"]]
        return [*opening, *(token for turn in turns for token in turn), self.special["<|assistant|>"]]
