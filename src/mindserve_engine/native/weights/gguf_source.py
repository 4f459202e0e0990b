"""Weights of one GGUF file, with 4-bit blocks kept as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from torch import Tensor

from mindserve_engine.interface import EngineError
from mindserve_engine.native.weights.quantised import GROUP, Int4Weight, Int8Weight, LinearWeight
from mindserve_engine.native.weights.source import DTYPES, missing, require_shape

_FLOATING: Final = (Kind.F32, Kind.F16, Kind.BF16)
_FOUR_BITS: Final = (Kind.Q4_0, Kind.Q4_1, Kind.Q4_K)
_SUPERBLOCK: Final = 256
"""Weights in one Q4_K block."""
_ROPE_DIVISORS: Final = "rope_freqs.weight"
"""How Llama 3 files carry their rope scaling."""


class GgufSource:
    """Tensors of a Llama, Qwen2 or Qwen3 file under the names transformers gives them.

    ``heads`` and ``kv_heads`` undo the row order in which Llama files keep their query and key projections (pairs that
    rotate together lie side by side; transformers splits them into halves)."""

    def __init__(self, path: Path, reader: gguf.GGUFReader, *, dtype: str, heads: int, kv_heads: int) -> None:
        self._path = path
        architecture = str(reader.fields["general.architecture"].contents())
        num_blocks = int(reader.fields[f"{architecture}.block_count"].contents())
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        self._names = gguf.get_tensor_name_map(_architecture(path, architecture), num_blocks)
        self._row_pairs = {"q_proj": heads, "k_proj": kv_heads} if architecture == "llama" else {}
        self._int4 = keeps_four_bits(reader, dtype)
        if dtype == "int4" and not self._int4:
            raise EngineError(f"{path}: dtype int4 needs a file quantised to 4 bits (Q4_0, Q4_1 or Q4_K)")
        self._dtype = DTYPES.get(dtype, torch.bfloat16)
        self.rope_divisors = self._floats(_ROPE_DIVISORS) if _ROPE_DIVISORS in self._tensors else None
        self.weights_name = "int4" if self._int4 else str(self._dtype).removeprefix("torch.")

    def __contains__(self, name: str) -> bool:
        return self._gguf_name(name) in self._tensors

    def tensor(self, name: str, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        return self._dequantised(name, shape).to(dtype or self._dtype)

    def linear(self, name: str, shape: tuple[int, int]) -> LinearWeight:
        kind = self._entry(name).tensor_type
        if not self._int4 or kind in _FLOATING or shape[1] % GROUP:
            return self.tensor(name, shape)
        if kind not in (*_FOUR_BITS, Kind.Q8_0):
            return Int8Weight.quantise(self._dequantised(name, shape))
        weight = unpack_eight_bits(self._entry(name)) if kind == Kind.Q8_0 else unpack_four_bits(self._entry(name))
        require_shape(name, weight.shape, shape)
        order = self._row_order(name, shape[0])
        return weight if order is None else weight.take_rows(order)

    def _dequantised(self, name: str, shape: tuple[int, ...]) -> Tensor:
        values = self._floats(self._entry(name).name)
        require_shape(name, tuple(values.shape), shape)
        order = self._row_order(name, shape[0])
        return values if order is None else values[order]

    def _floats(self, gguf_name: str) -> Tensor:
        tensor = self._tensors[gguf_name]
        return torch.from_numpy(np.array(gguf.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32))

    def _entry(self, name: str) -> gguf.ReaderTensor:
        tensor = self._tensors.get(self._gguf_name(name))
        if tensor is None:
            raise missing(name, self._path)
        return tensor

    def _gguf_name(self, name: str) -> str:
        stem, _, suffix = name.rpartition(".")
        return f"{self._names.get_name(stem) or stem}.{suffix}"

    def _row_order(self, name: str, num_rows: int) -> Tensor | None:
        heads = next((n for part, n in self._row_pairs.items() if f"self_attn.{part}" in name), None)
        if heads is None:
            return None
        return torch.arange(num_rows).view(heads, num_rows // heads // 2, 2).transpose(1, 2).reshape(-1)


def keeps_four_bits(reader: gguf.GGUFReader, dtype: str) -> bool:
    """Whether the file's linear weights are (mostly) 4 bits and the dtype asked for keeps them so."""
    kinds = [tensor.tensor_type for tensor in reader.tensors if tensor.tensor_type not in _FLOATING]
    mostly = sum(kind in _FOUR_BITS for kind in kinds) * 2 > len(kinds)
    return mostly and dtype in ("auto", "int4")


def _architecture(path: Path, name: str) -> gguf.MODEL_ARCH:
    for architecture, arch_name in gguf.MODEL_ARCH_NAMES.items():
        if arch_name == name:
            return architecture
    raise EngineError(f"{path}: GGUF architecture '{name}' is not known")


def unpack_four_bits(tensor: gguf.ReaderTensor) -> Int4Weight:
    """Codes, scales and minima of each group of 32, from GGML's layouts."""
    num_rows, num_columns = int(tensor.shape[1]), int(tensor.shape[0])
    if tensor.tensor_type == Kind.Q4_K:
        codes, scale, minimum = _superblocks(tensor.data.reshape(num_rows * (num_columns // _SUPERBLOCK), -1))
    else:
        codes, scale, minimum = _blocks(tensor.data.reshape(num_rows * (num_columns // GROUP), -1), tensor.tensor_type)
    groups = (num_rows, num_columns // GROUP)
    return Int4Weight(
        torch.from_numpy(codes.reshape(num_rows, num_columns)),
        torch.from_numpy(scale.reshape(groups)),
        torch.from_numpy(minimum.reshape(groups)),
    )


def unpack_eight_bits(tensor: gguf.ReaderTensor) -> Int8Weight:
    """Q8_0: scale, 32 codes."""
    num_rows, num_columns = int(tensor.shape[1]), int(tensor.shape[0])
    blocks = tensor.data.reshape(num_rows * (num_columns // GROUP), -1)
    return Int8Weight(
        torch.from_numpy(np.ascontiguousarray(blocks[:, 2:]).view(np.int8).reshape(num_rows, num_columns)),
        torch.from_numpy(_halves(blocks[:, 0:2]).reshape(num_rows, num_columns // GROUP)),
    )


def _blocks(blocks: np.ndarray, kind: Kind) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Q4_0: scale, 16 bytes. Q4_1: scale, minimum, 16 bytes. Low nibbles hold the first 16 weights."""
    scale = _halves(blocks[:, 0:2])
    minimum = -8 * scale if kind == Kind.Q4_0 else _halves(blocks[:, 2:4])
    packed = blocks[:, -GROUP // 2 :]
    return np.concatenate([packed & 15, packed >> 4], axis=1), scale, minimum


def _superblocks(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Q4_K: two float16 factors, 12 bytes of 6-bit scales and minima for 8 groups, 128 bytes of weights."""
    scales, minima = gguf.quants.Q4_K.get_scale_min(np.ascontiguousarray(blocks[:, 4:16]))
    scale = _halves(blocks[:, 0:2])[:, None] * scales.astype(np.float32)
    minimum = -_halves(blocks[:, 2:4])[:, None] * minima.astype(np.float32)
    packed = blocks[:, 16:].reshape(-1, 4, 1, GROUP)
    return np.concatenate([packed & 15, packed >> 4], axis=2).reshape(len(blocks), -1), scale, minimum


def _halves(two_bytes: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(two_bytes).view(np.float16)[:, 0].astype(np.float32)
