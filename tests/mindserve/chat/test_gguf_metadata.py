from __future__ import annotations

from pathlib import Path

import pytest
from gguf import GGUFEndian, GGUFReader, GGUFWriter

from mindserve.chat.gguf_metadata import read_gguf_metadata


def write(path: Path, endianness: GGUFEndian = GGUFEndian.LITTLE) -> Path:
    """A value of every kind."""
    writer = GGUFWriter(path, "llama", endianess=endianness)
    writer.add_uint8("a.uint8", 200)
    writer.add_int8("a.int8", -100)
    writer.add_uint16("a.uint16", 60000)
    writer.add_int16("a.int16", -30000)
    writer.add_uint32("a.uint32", 4_000_000_000)
    writer.add_int32("a.int32", -2_000_000_000)
    writer.add_float32("a.float32", 0.5)
    writer.add_uint64("a.uint64", 2**64 - 1)
    writer.add_int64("a.int64", -(2**63))
    writer.add_float64("a.float64", 1e300)
    writer.add_bool("a.bool", val=True)
    writer.add_string("a.string", "日本語")
    writer.add_array("a.strings", ["x", "é", "<|im_end|>"])
    writer.add_array("a.integers", [1, -2, 3])
    writer.add_array("a.floats", [0.25, -4.0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def as_the_library_reads_it(path: Path) -> dict[str, object]:
    return {key: field.contents() for key, field in GGUFReader(path).fields.items() if not key.startswith("GGUF.")}


@pytest.mark.parametrize("endianness", GGUFEndian)
def test_it_is_what_the_library_reads(tmp_path: Path, endianness: GGUFEndian) -> None:
    path = write(tmp_path / "m.gguf", endianness)
    found = read_gguf_metadata(path)
    assert len(found) == 16
    assert found == as_the_library_reads_it(path)


def test_a_file_that_is_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    whole = write(tmp_path / "m.gguf").read_bytes()
    path = tmp_path / "cut.gguf"
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"."):
            read_gguf_metadata(path)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"GGUX" + b"\0" * 40, "does not begin with GGUF"),
        (b"GGUF\x09\0\0\0" + b"\0" * 40, "version 9"),
        (b"GGUF\x03\0\0\0" + b"\0" * 8 + b"\x01" + b"\0" * 7 + b"\x01" + b"\0" * 7 + b"k\x63\0\0\0", "unknown type 99"),
        (b"GGUF\x03\0\0\0" + b"\0" * 8 + b"\xff" * 8 + b"\xff" * 8 + b"x" * 99, "ends within a text"),
        (
            b"GGUF\x03\0\0\0" + b"\0" * 8 + b"\x01" + b"\0" * 15 + b"\x09\0\0\0" + b"\x04\0\0\0" + b"\xff" * 9,
            "metadata",
        ),
        (
            b"GGUF\x03\0\0\0" + b"\0" * 8 + b"\x01" + b"\0" * 15 + (b"\x09\0\0\0" + b"\x01" + b"\0" * 7) * 9999,
            "metadata",
        ),
    ],
)
def test_what_is_no_metadata_is_refused(tmp_path: Path, head: bytes, message: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(head)
    with pytest.raises(ValueError, match=message):
        read_gguf_metadata(path)
