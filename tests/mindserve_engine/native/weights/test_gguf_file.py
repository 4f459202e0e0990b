"""The quick reader of GGUF headers gives what the library's own gives."""

from __future__ import annotations

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


def test_a_file_cut_anywhere_in_its_header_is_one_clear_line(model: Path, tmp_path: Path) -> None:
    content = model.read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in range(0, open_gguf(model).data_offset, 97):
        cut.write_bytes(content[:length])
        with pytest.raises(EngineError, match=r"cut\.gguf: not a readable GGUF file") as caught:
            open_gguf(cut)
        assert "\n" not in str(caught.value)
