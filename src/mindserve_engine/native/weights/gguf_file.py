"""Opening a GGUF file without taking its vocabulary apart piece by piece."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, Final

import gguf
from gguf import GGUFValueType as ValueType

from mindserve_engine.interface import EngineError

_LENGTH: Final = struct.Struct("<Q")
_ARRAY_HEAD: Final = struct.Struct("<IQ")
"""Type of the items and their number."""

_FieldParts = tuple[int, list[Any], list[int], list[ValueType]]


class GgufFile(gguf.GGUFReader):  # type: ignore[misc]  # the library has no types
    """The library's reader makes several numpy arrays for each of the hundred thousand strings of a vocabulary, which
    takes three seconds. Here an array of strings becomes slices of the file, and one of numbers a single numpy array;
    fields keep their ``contents()``."""

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> _FieldParts:
        if raw_type != ValueType.ARRAY or self.byte_order != "I":
            return self._parts_one_by_one(orig_offs, raw_type)
        kind, num_items = _ARRAY_HEAD.unpack_from(self.data, orig_offs)
        start = orig_offs + _ARRAY_HEAD.size
        if kind == ValueType.STRING:
            items, end = _strings(memoryview(self.data), start, num_items)
        elif kind in self.gguf_scalar_to_np:
            numbers = self._get(start, self.gguf_scalar_to_np[ValueType(kind)], num_items)
            if len(numbers) < num_items:
                raise ValueError("the file ends within its metadata")
            items, end = [numbers], start + numbers.nbytes
        else:
            return self._parts_one_by_one(orig_offs, raw_type)
        return end - orig_offs, items, list(range(len(items))), [ValueType.ARRAY, ValueType(kind)]

    def _parts_one_by_one(self, offset: int, raw_type: int) -> _FieldParts:
        parts: _FieldParts = super()._get_field_parts(offset, raw_type)
        return parts


def _strings(data: memoryview, start: int, num_items: int) -> tuple[list[Any], int]:
    """[n] slices of ``data``, each after its length; and where the last one ends."""
    items = []
    for _ in range(num_items):
        (length,) = _LENGTH.unpack_from(data, start)
        start += _LENGTH.size
        items.append(data[start : start + length])
        start += length
    return items, start


def open_gguf(path: Path) -> gguf.GGUFReader:
    """The file's header and memory-mapped tensors. Raises ``EngineError`` for what is not a whole GGUF file."""
    try:
        return GgufFile(path)
    except (ValueError, OSError, IndexError, KeyError, TypeError, OverflowError, struct.error) as error:
        first_line = str(error).partition("\n")[0]
        raise EngineError(f"{path}: not a readable GGUF file ({first_line})") from error
