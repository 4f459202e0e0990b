"""Opening a GGUF file without taking its vocabulary apart piece by piece."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
from gguf import GGUFValueType as ValueType

from mindserve_engine.first_line import first_line
from mindserve_engine.interface import EngineError

_LENGTH: Final = struct.Struct("<Q")
_ARRAY_HEAD: Final = struct.Struct("<IQ")
"""Type of the items and their number."""


class _CutOff(Exception):
    """The file has fewer bytes than its header speaks of."""

    def __init__(self, num_bytes: int, needed: str) -> None:
        super().__init__(f"it has {num_bytes} bytes, {needed} are needed")


_FieldParts = tuple[int, list[Any], list[int], list[ValueType]]


class GgufFile(gguf.GGUFReader):  # type: ignore[misc]  # the library has no types
    """The library's reader makes several numpy arrays for each of the hundred thousand strings of a vocabulary, which
    takes three seconds. Here an array of strings becomes slices of the file, and one of numbers a single numpy array;
    fields keep their ``contents()``."""

    def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
        # numpy gives what there is, and what is missing shows in strange places
        self._require(offset + np.dtype(dtype).itemsize * int(count))
        return super()._get(offset, dtype, count, override_order)

    def _build_tensors(self, start_offs: int, fields: list[Any]) -> None:
        end = max((start_offs + _tensor_end(field.parts) for field in fields), default=0)
        if end > len(self.data):
            raise _CutOff(len(self.data), str(end))
        super()._build_tensors(start_offs, fields)

    def _require(self, end: int) -> None:
        if end > len(self.data):
            raise _CutOff(len(self.data), f"at least {end}")

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> _FieldParts:
        if raw_type != ValueType.ARRAY or self.byte_order != "I":
            return self._parts_one_by_one(orig_offs, raw_type)
        start = orig_offs + _ARRAY_HEAD.size
        self._require(start)
        kind, num_items = _ARRAY_HEAD.unpack_from(self.data, orig_offs)
        if kind == ValueType.STRING:
            items, end = _strings(memoryview(self.data), start, num_items)
            self._require(end)
        elif kind in self.gguf_scalar_to_np:
            numbers = self._get(start, self.gguf_scalar_to_np[ValueType(kind)], num_items)
            items, end = [numbers], start + numbers.nbytes
        else:
            return self._parts_one_by_one(orig_offs, raw_type)
        return end - orig_offs, items, list(range(len(items))), [ValueType.ARRAY, ValueType(kind)]

    def _parts_one_by_one(self, offset: int, raw_type: int) -> _FieldParts:
        parts: _FieldParts = super()._get_field_parts(offset, raw_type)
        return parts


def _strings(data: memoryview, start: int, num_items: int) -> tuple[list[Any], int]:
    """[n] slices of ``data``, each after its length; and where the last one ends. Stops where ``data`` does."""
    items: list[Any] = []
    last = len(data) - _LENGTH.size
    for _ in range(num_items):
        if start > last:
            return items, start + _LENGTH.size
        (length,) = _LENGTH.unpack_from(data, start)
        start += _LENGTH.size
        items.append(data[start : start + length])
        start += length
    return items, start


def _tensor_end(parts: list[Any]) -> int:
    """Where a tensor ends, from the start of all tensors: by its entry in the header."""
    _, _, _, sizes, kind, offset = parts
    block_size, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind[0])]
    num_weights: int = math.prod(sizes.tolist())
    return int(offset[0]) + num_weights // int(block_size) * int(block_bytes)


def open_gguf(path: Path) -> gguf.GGUFReader:
    """The file's header and memory-mapped tensors. Raises ``EngineError`` for what is not a whole GGUF file."""
    try:
        return GgufFile(path)
    except _CutOff as error:
        raise EngineError(f"{path}: the GGUF file is cut off: {error}") from error
    except (ValueError, OSError, IndexError, KeyError, TypeError, OverflowError) as error:
        raise EngineError(f"{path}: not a readable GGUF file ({first_line(error)})") from error
