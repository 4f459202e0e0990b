"""Weights of a transformers folder: one safetensors file, or shards with an index."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mindserve_engine.first_look import missing_shard, weight_files
from mindserve_engine.interface import EngineError
from mindserve_engine.native.weights.source import missing, require_shape


class _Handle(Protocol):
    """What we use of ``safetensors.safe_open``, which has no types."""

    def keys(self) -> Iterable[str]: ...

    def get_tensor(self, name: str) -> Tensor: ...


class SafetensorsSource:
    """Reads tensors one by one, memory-mapped, so that loading never holds the model twice."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        self._folder = folder
        self._dtype = dtype
        self._files = {path.name: _open(path) for path in weight_files(folder)}
        self._file_of = {name: file for file, handle in self._files.items() for name in set(handle.keys())}
        self.rope_divisors: Tensor | None = None
        self.weights_name = str(dtype).removeprefix("torch.")

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    def tensor(self, name: str, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        file = self._file_of.get(name)
        if file is None:
            raise missing(name, self._folder)
        tensor = self._files[file].get_tensor(name)
        require_shape(name, tuple(tensor.shape), shape)
        return tensor.to(dtype or self._dtype, copy=True)  # what is mapped from the file would go with the file

    def linear(self, name: str, shape: tuple[int, int]) -> Tensor:
        return self.tensor(name, shape)


def _open(path: Path) -> _Handle:
    try:
        handle: _Handle = safe_open(path, framework="pt")
        return handle
    except FileNotFoundError as error:
        raise missing_shard(path) from error
    except (SafetensorError, OSError) as error:
        raise EngineError(f"{path}: not a readable safetensors file ({error})") from error
