"""GGUF files: 4-bit blocks kept exactly, everything else dequantised as the gguf library does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from safetensors.torch import load_file

from mindserve_engine.interface import EngineError
from mindserve_engine.native.weights.gguf_file import open_gguf
from mindserve_engine.native.weights.gguf_source import GgufSource, unpack_eight_bits, unpack_four_bits
from mindserve_engine.native.weights.quantised import Int4Weight, Int8Weight, widen
from tests import tiny_gguf

Q_PROJ = "model.layers.1.self_attn.q_proj.weight"
O_PROJ = "model.layers.1.self_attn.o_proj.weight"
DOWN_PROJ = "model.layers.1.mlp.down_proj.weight"
EMBEDDING = "model.embed_tokens.weight"


def source(path: Path, dtype: str = "auto") -> GgufSource:
    return GgufSource(path, open_gguf(path), dtype=dtype, heads=4, kv_heads=2)


def original(path: Path, name: str) -> torch.Tensor:
    """The weight before it was quantised."""
    return load_file(path.parent / "source" / "model.safetensors")[name]


@pytest.fixture(scope="module")
def q4_1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gguf.write("llama", tmp_path_factory.mktemp("q4_1"))


@pytest.mark.parametrize("kind", [Kind.Q4_0, Kind.Q4_1, Kind.Q4_K])
def test_unpacked_blocks_are_what_the_gguf_library_dequantises(kind: Kind) -> None:
    data = tiny_gguf.random_blocks(kind, num_rows=6, num_columns=512)
    tensor = SimpleNamespace(data=data, tensor_type=kind, shape=np.array([512, 6]))
    expected = torch.from_numpy(gguf.dequantize(data, kind))
    torch.testing.assert_close(unpack_four_bits(tensor).dequantise(), expected, rtol=1e-5, atol=1e-4)


def test_eight_bit_blocks_are_what_the_gguf_library_dequantises() -> None:
    data = tiny_gguf.random_blocks(Kind.Q8_0, num_rows=6, num_columns=512)
    tensor = SimpleNamespace(data=data, tensor_type=Kind.Q8_0, shape=np.array([512, 6]))
    expected = torch.from_numpy(gguf.dequantize(data, Kind.Q8_0))
    assert torch.equal(unpack_eight_bits(tensor).dequantise(), expected)


def test_auto_keeps_four_bits(q4_1: Path) -> None:
    opened = source(q4_1)
    assert opened.weights_name == "int4"
    assert isinstance(opened.linear(Q_PROJ, (64, 64)), Int4Weight)
    assert isinstance(opened.linear(EMBEDDING, (300, 64)), Int8Weight)


@pytest.mark.parametrize("name", [Q_PROJ, O_PROJ])
def test_four_bits_and_float32_agree_and_undo_the_row_order(q4_1: Path, name: str) -> None:
    kept = widen(source(q4_1).linear(name, (64, 64)))
    wide = widen(source(q4_1, "float32").linear(name, (64, 64)))
    torch.testing.assert_close(kept, wide, rtol=1e-5, atol=1e-5)
    step = (original(q4_1, name).view(64, 2, 32).amax(-1) - original(q4_1, name).view(64, 2, 32).amin(-1)) / 15
    assert ((wide - original(q4_1, name)).view(64, 2, 32).abs() <= step[..., None] * 0.51 + 2e-3).all()


def test_qwen_rows_are_in_order(tmp_path: Path) -> None:
    path = tiny_gguf.write("qwen2", tmp_path, linear=Kind.F32, embedding=Kind.F32)
    assert torch.equal(source(path, "float32").tensor(Q_PROJ, (64, 64)), original(path, Q_PROJ))


@pytest.fixture(scope="module")
def mixed_k(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """4 and 6 bits in superblocks, as in files called Q4_K_M."""
    folder = tmp_path_factory.mktemp("mixed_k")
    return tiny_gguf.write("llama", folder, linear=Kind.Q4_K, parts=tiny_gguf.MIXED_K, **tiny_gguf.K_SIZES)


@pytest.mark.parametrize("name", [Q_PROJ, O_PROJ])
def test_four_bits_in_superblocks_are_kept_exactly(mixed_k: Path, name: str) -> None:
    kept = source(mixed_k).linear(name, (256, 256))
    assert isinstance(kept, Int4Weight)
    torch.testing.assert_close(
        kept.dequantise(), source(mixed_k, "float32").tensor(name, (256, 256)), rtol=0, atol=1e-6
    )


def test_six_bits_become_eight(mixed_k: Path) -> None:
    """Off by half a step of 8 bits; the scale is a float16, 127 of which may fall a little short of the greatest."""
    exact = source(mixed_k, "float32").tensor(DOWN_PROJ, (256, 512))
    held = source(mixed_k).linear(DOWN_PROJ, (256, 512))
    assert isinstance(held, Int8Weight)
    step = exact.view(256, -1, 32).abs().amax(dim=-1, keepdim=True) / 127
    assert ((held.dequantise() - exact).view(256, -1, 32).abs() <= step * 0.57).all()


def test_float_dtypes_dequantise(q4_1: Path) -> None:
    opened = source(q4_1, "bfloat16")
    assert opened.weights_name == "bfloat16"
    weight = opened.linear(Q_PROJ, (64, 64))
    assert isinstance(weight, torch.Tensor)
    assert weight.dtype == torch.bfloat16


def test_int4_of_a_file_without_four_bits_is_refused(tmp_path: Path) -> None:
    path = tiny_gguf.write("llama", tmp_path, linear=Kind.Q8_0)
    assert source(path).weights_name == "bfloat16"
    with pytest.raises(EngineError, match="int4 needs a file quantised to 4 bits"):
        source(path, "int4")


def test_membership(q4_1: Path) -> None:
    assert Q_PROJ in source(q4_1)
    assert "model.layers.0.self_attn.q_proj.bias" not in source(q4_1)
    assert "lm_head.weight" not in source(q4_1)


def test_wrong_shape_and_missing_tensor_are_named(q4_1: Path) -> None:
    with pytest.raises(EngineError, match=r"q_proj.weight' has shape \[64, 64\], the model's config needs \[32, 64\]"):
        source(q4_1).linear(Q_PROJ, (32, 64))
    with pytest.raises(EngineError, match=r"no tensor 'lm_head\.weight'"):
        source(q4_1).tensor("lm_head.weight", (300, 64))


def test_rope_divisors(q4_1: Path, tmp_path: Path) -> None:
    assert source(q4_1).rope_divisors is None
    divisors = np.linspace(1, 8, 8)
    read = source(tiny_gguf.write("llama", tmp_path, rope_divisors=divisors)).rope_divisors
    assert read is not None
    np.testing.assert_allclose(read.numpy(), divisors, rtol=1e-6)
