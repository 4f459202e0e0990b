"""What a ChatGLM folder must say, and what is said of one that does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
import torch
from safetensors.torch import load_file, save_file

from mindserve_engine.interface import EngineError
from mindserve_engine.native.models.facts import read_facts
from mindserve_engine.native.weights.chatglm_source import half_order
from tests import tiny_chatglm
from tests.engine.drive import load

MISSING: Final = object()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_chatglm.build(tmp_path)


def refused(folder: Path, **changes: Any) -> str:
    config = {**tiny_chatglm.CONFIG, **changes}
    written = {key: value for key, value in config.items() if value is not MISSING}
    (folder / "config.json").write_text(json.dumps(written))
    with pytest.raises(EngineError) as caught:
        read_facts(folder, trust_remote_code=True)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "key",
    [
        *("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "padded_vocab_size", "seq_length"),
        *("multi_query_group_num", "layernorm_epsilon"),
    ],
)
@pytest.mark.parametrize("value", [MISSING, None, 0, -1, "8", True])
def test_sizes(folder: Path, key: str, value: Any) -> None:
    told = "missing" if value is MISSING else repr(value)
    assert f"{key} is {told}, it must be" in refused(folder, **{key: value})


@pytest.mark.parametrize(
    ("key", "value", "needed"),
    [
        ("multi_query_attention", False, True),
        ("multi_query_attention", MISSING, True),
        ("rmsnorm", False, True),
        ("post_layer_norm", False, True),
        ("original_rope", False, True),
        ("apply_residual_connection_post_layernorm", True, False),
        ("add_bias_linear", True, False),
        ("quantization_bit", 4, 0),
        ("quantization_config", {"quant_method": "gptq"}, None),
        ("pre_seq_len", 128, None),
        ("vision_config", {"hidden_size": 8}, None),
    ],
)
def test_variants_that_are_not_computed(folder: Path, key: str, value: Any, needed: Any) -> None:
    given = False if value is MISSING else value
    assert f"{key} is {given!r}, only {needed!r} is supported" in refused(folder, **{key: value})


def test_sizes_that_do_not_fit(folder: Path) -> None:
    assert "num_attention_heads, 4, is no multiple of multi_query_group_num, 3" in refused(
        folder, multi_query_group_num=3
    )
    assert "kv_channels is 18, no multiple of 4" in refused(folder, kv_channels=18)
    assert "rope_ratio is 0, it must be a number above 0" in refused(folder, rope_ratio=0)


def test_the_first_chatglm_is_refused(folder: Path) -> None:
    """Of the same type, with another architecture and other names for its sizes."""
    first = {"model_type": "chatglm", "hidden_size": 4096, "inner_hidden_size": 16384, "position_encoding_2d": True}
    (folder / "config.json").write_text(json.dumps(first))
    with pytest.raises(EngineError, match="num_layers is missing"):
        read_facts(folder, trust_remote_code=False)


def test_a_vocabulary_of_another_kind(folder: Path) -> None:
    (folder / "tokenizer.model").write_bytes(b"IQ== 0\n")
    with pytest.raises(EngineError, match=r"tokenizer\.model is no SentencePiece model"):
        read_facts(folder, trust_remote_code=False)


@pytest.mark.parametrize(
    "name", ["encoder.layers.1.self_attention.query_key_value.bias", "encoder.layers.2.mlp.dense_h_to_4h.weight"]
)
def test_missing_and_misshapen_tensors(folder: Path, name: str) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    tensor = weights.pop(f"transformer.{name}")
    save_file(weights, path)
    with pytest.raises(EngineError, match=f"the weights have no tensor 'transformer.{name}'"):
        load(folder)
    save_file({**weights, f"transformer.{name}": tensor[1:].clone()}, path)
    with pytest.raises(EngineError, match=f"tensor 'transformer.{name}' has shape"):
        load(folder)


def test_weights_in_another_format(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(EngineError, match="weights must be in safetensors format"):
        load(folder)


@pytest.mark.parametrize("head_dim", [4, 16, 24, 128])
def test_order_of_rows(head_dim: int) -> None:
    """A pair that is turned stands half a head apart, and nothing is lost."""
    order = half_order(head_dim)
    assert sorted(order.tolist()) == list(range(head_dim))
    first, second = order.chunk(2)
    turned = first < head_dim // 2
    assert int(turned.sum()) == head_dim // 4
    torch.testing.assert_close(second[turned], first[turned] + 1)
    assert (first[turned] % 2 == 0).all()
