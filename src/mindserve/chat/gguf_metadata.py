"""The keys and values at the head of a GGUF file.

The gguf library's reader makes several arrays for each of the hundred thousand strings of a vocabulary; here a string
costs one slice of the file. Nothing is read behind the last key.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any, Final

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_STRING: Final = 8
_ARRAY: Final = 9
_NUMBERS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Letters of ``struct`` by the format's numbers of types."""


def read_gguf_metadata(path: Path) -> dict[str, Any]:
    """Strings, numbers, and lists of them, by key. Raises ``ValueError`` or ``OSError`` for what is no GGUF file."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:4] != _MAGIC:
            raise ValueError("it does not begin with GGUF")
        try:
            return _Reader(data).read()
        except (struct.error, RecursionError) as error:
            raise ValueError("the file ends within its metadata") from error


class _Reader:
    """Reads values one behind the other."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._position = len(_MAGIC)
        (version,) = struct.unpack_from("<I", data, self._position)
        self._order = "<" if version & 0xFFFF else ">"  # a file of the other byte order has its version in the top half
        self._length = struct.Struct(f"{self._order}Q")

    def read(self) -> dict[str, Any]:
        version = self._numbers("I", 1)[0]
        if version not in _VERSIONS:
            raise ValueError(f"its version {version} is none of {_VERSIONS}")
        _num_tensors, num_keys = self._numbers("Q", 2)
        return {self._string(): self._value(self._kind()) for _ in range(num_keys)}

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._numbers(_letter(kind), 1)[0]
        kind, num_items = self._kind(), self._numbers("Q", 1)[0]
        if kind in (_STRING, _ARRAY):
            return [self._value(kind) for _ in range(num_items)]
        return list(self._numbers(_letter(kind), num_items))

    def _kind(self) -> int:
        return int(self._numbers("I", 1)[0])

    def _numbers(self, letter: str, count: int) -> tuple[Any, ...]:
        shape = f"{self._order}{count}{letter}"
        values = struct.unpack_from(shape, self._data, self._position)
        self._position += struct.calcsize(shape)
        return values

    def _string(self) -> str:
        (length,) = self._length.unpack_from(self._data, self._position)
        start = self._position + self._length.size
        self._position = start + length
        if self._position > len(self._data):
            raise ValueError("the file ends within a text")
        return self._data[start : self._position].decode()


def _letter(kind: int) -> str:
    if kind not in _NUMBERS:
        raise ValueError(f"a value is of the unknown type {kind}")
    return _NUMBERS[kind]
