from pathlib import Path

import pytest

from mindserve.config.faults import ConfigUnreadable
from mindserve.config.reading import MAX_CONFIG_BYTES, read_config


def problem(path: Path) -> str:
    with pytest.raises(ConfigUnreadable) as caught:
        read_config(path)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(str(path))
    return text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"{", ":1:2: is not valid JSON"),
        (b'{"ServerConfig": {\n  "port": 1025,\n}}', ":3:1: is not valid JSON"),
        (b"{} {}", ":1:4: is not valid JSON: Extra data"),
        (b"// note\n{}", "is not valid JSON"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ('{"a": 1}'.encode("utf-16"), "is not UTF-8 text"),
        (b'{"a": "\xff"}', "is not UTF-8 text (byte 7)"),
        (b'{"ServerConfig": {"port": 1, "port": 2}}', 'the key "port" stands twice'),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "-Infinity is not a JSON number"),
        (b"[]", "must hold one JSON object"),
        (b"null", "must hold one JSON object"),
        (b"5", "must hold one JSON object, holds 5"),
        (b'{"a": ' + b"[" * 100_000, "is nested more than 64 deep"),
        (b'{"a": ' + b"[" * 64 + b"]" * 64 + b"}", "is nested more than 64 deep"),
        (b'{"a": ' + b"[" * 450 + b"]" * 450 + b"}", "is nested more than 64 deep"),
        (b'{"a": ' + b"9" * 5_000 + b"}", f"the number {'9' * 40}… has 5000 characters, the maximum is 40"),
        (b'{"a": 1e999}', "the number 1e999 is too large"),
    ],
)
def test_what_is_not_one_json_object_is_told_in_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    assert words in problem(path)


def test_a_missing_file_a_folder_and_a_huge_file(tmp_path: Path) -> None:
    assert "No such file" in problem(tmp_path / "nowhere.json")
    assert "Is a directory" in problem(tmp_path)
    huge = tmp_path / "huge.json"
    huge.write_bytes(b" " * (MAX_CONFIG_BYTES + 1))
    assert "is larger than" in problem(huge)


def test_nesting_up_to_the_limit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"a": ' + "[" * 63 + "]" * 63 + "}")
    assert "a" in read_config(path)


def test_the_same_key_in_two_objects_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"a": {"port": 1}, "b": {"port": 2}}')
    assert read_config(path) == {"a": {"port": 1}, "b": {"port": 2}}
