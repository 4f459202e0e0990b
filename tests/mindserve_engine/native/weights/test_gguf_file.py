"""The quick reader of GGUF headers gives what the library's own gives."""

from __future__ import annotations

import re
from pathlib import Path

import gguf
import pytest

from mindserve_engine.interface import EngineError
from mindserve_engine.native.weights.gguf_file import open_gguf
from tests import tiny_gguf

ARRAYS = {
    "test.words": ["", "one", "zwölf", "一" * 100],
    "test.numbers": [1, -2, 3],
    "test.fractions": [0.5, -1.25],
    "test.flags": [True, False, True],
    "test.nested": [[1, 2], [3]],
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gguf.write("llama", tmp_path_factory.mktemp("model"))


def assert_same(ours: gguf.GGUFReader, theirs: gguf.GGUFReader) -> None:
    assert {key: field.contents() for key, field in ours.fields.items()} == {
        key: field.contents() for key, field in theirs.fields.items()
    }
    assert [(t.name, t.tensor_type, t.data_offset, t.n_bytes) for t in ours.tensors] == [
        (t.name, t.tensor_type, t.data_offset, t.n_bytes) for t in theirs.tensors
    ]


def test_a_model(model: Path) -> None:
    ours = open_gguf(model)
    assert_same(ours, gguf.GGUFReader(model))
    assert len(ours.fields["tokenizer.ggml.tokens"].contents()) == 300


@pytest.mark.parametrize("endian", [gguf.GGUFEndian.LITTLE, gguf.GGUFEndian.BIG])
def test_arrays_of_every_kind(tmp_path: Path, endian: gguf.GGUFEndian) -> None:
    path = tmp_path / "arrays.gguf"
    writer = gguf.GGUFWriter(path, "llama", endianess=endian)
    for key, items in ARRAYS.items():
        writer.add_array(key, items)
    writer.add_uint32("test.after", 7)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    read = open_gguf(path)
    assert_same(read, gguf.GGUFReader(path))
    assert read.fields["test.after"].contents() == 7
    assert read.fields["test.words"].contents(1) == "one"
    for key in ("test.words", "test.numbers", "test.fractions", "test.flags"):
        assert read.fields[key].contents() == ARRAYS[key]


def cut_off(model: Path, folder: Path, num_bytes: int) -> str:
    """What is said of the first bytes of a model."""
    cut = folder / "cut.gguf"
    cut.write_bytes(model.read_bytes()[:num_bytes])
    with pytest.raises(EngineError) as caught:
        open_gguf(cut)
    return str(caught.value).removeprefix(f"{cut}: ")


def test_a_file_cut_within_its_header_is_one_clear_line(model: Path, tmp_path: Path) -> None:
    for length in range(1, open_gguf(model).data_offset - 32, 7):
        said = re.fullmatch(
            r"the GGUF file is cut off: it has (\d+) bytes, at least (\d+) are needed", cut_off(model, tmp_path, length)
        )
        assert said
        assert int(said[1]) == length < int(said[2]) <= model.stat().st_size


def test_a_file_cut_within_its_tensors_tells_its_full_size(model: Path, tmp_path: Path) -> None:
    start, size = open_gguf(model).data_offset, model.stat().st_size
    used = max(tensor.data_offset + tensor.n_bytes for tensor in open_gguf(model).tensors)
    for length in {start, start + 1, (start + size) // 2, used - 1}:
        assert cut_off(model, tmp_path, length) == f"the GGUF file is cut off: it has {length} bytes, {used} are needed"


@pytest.mark.parametrize("content", [b"", b"hello world, this is no model", b"GGUF" + b"\x03" * 60])
def test_what_is_no_gguf_file_is_one_clear_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(EngineError, match=r"bad\.gguf: not a readable GGUF file") as caught:
        open_gguf(path)
    assert "\n" not in str(caught.value)
