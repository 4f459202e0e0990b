from __future__ import annotations

from collections.abc import Callable

import pytest

from mindserve.chat.tokenizer import ChatTokenizer
from mindserve.chat.vocabulary import LeadingSpace, Spelling, build_token_table, byte_alphabet

Tokenizers = Callable[[str], ChatTokenizer]


def test_the_byte_alphabet_is_the_librarys() -> None:
    from tokenizers.pre_tokenizers import ByteLevel

    assert set(byte_alphabet()) == set(ByteLevel.alphabet())
    assert sorted(byte_alphabet().values()) == list(range(256))
    assert byte_alphabet()["Ġ"] == 0x20
    assert byte_alphabet()["Ċ"] == 0x0A


@pytest.mark.parametrize("name", ["default", "chatml", "headers"])
def test_token_bytes_join_to_the_text(tokenizer_of: Tokenizers, name: str) -> None:
    tokenizer = tokenizer_of(name)
    text = "naïve 🦩\n\n  中文 'x' \x00\u00a0"
    ids = tokenizer.backend.encode(text, add_special_tokens=False).ids
    assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()


def test_sentencepiece_tokens(tokenizer_of: Tokenizers) -> None:
    tokenizer = tokenizer_of("instruct")
    token = tokenizer.backend.token_to_id
    assert tokenizer.token_bytes(token("<0xF0>")) == b"\xf0"
    assert tokenizer.token_bytes(token("▁")) == b" "
    assert tokenizer.token_bytes(token("</s>")) == b"</s>"
    assert token("</s>") in tokenizer.table.special_ids
    assert token("▁") not in tokenizer.table.special_ids


def test_added_tokens_are_their_own_text(tokenizer_of: Tokenizers) -> None:
    tokenizer = tokenizer_of("chatml")
    think, end = map(tokenizer.backend.token_to_id, ("<think>", "<|im_end|>"))
    assert tokenizer.token_bytes(think) == b"<think>"
    assert think not in tokenizer.table.special_ids
    assert tokenizer.token_bytes(end) == b"<|im_end|>"
    assert end in tokenizer.table.special_ids


def test_an_added_token_of_letters_from_the_byte_alphabet_is_text() -> None:
    added = [{"content": "é", "special": False}]
    table = build_token_table({"decoder": {"type": "ByteLevel"}, "added_tokens": added}, {"é": 0, "Ã": 1})
    assert table.pieces == ["é".encode(), b"\xc3"]


def test_ids_beyond_the_vocabulary_are_nothing(tokenizer_of: Tokenizers) -> None:
    tokenizer = tokenizer_of("chatml")
    assert tokenizer.token_bytes(tokenizer.vocab_size) == b""
    assert tokenizer.token_bytes(-1) == b""


def test_gaps_in_the_vocabulary_are_nothing() -> None:
    table = build_token_table({"decoder": {"type": "ByteLevel"}, "added_tokens": []}, {"a": 0, "b": 3})
    assert table.pieces == [b"a", b"", b"", b"b"]
    assert table.known_ids == {0, 3}


@pytest.mark.parametrize(
    ("decoder", "spelling", "leading_space"),
    [
        (None, Spelling.OTHER, LeadingSpace.KEEP),
        ({"type": "WordPiece"}, Spelling.OTHER, LeadingSpace.KEEP),
        ({"type": "ByteLevel"}, Spelling.BYTE_LEVEL, LeadingSpace.KEEP),
        (
            {"type": "Metaspace", "prepend_scheme": "always"},
            Spelling.SENTENCEPIECE,
            LeadingSpace.STRIP_FIRST_TOKEN,
        ),
        ({"type": "Metaspace", "prepend_scheme": "never"}, Spelling.SENTENCEPIECE, LeadingSpace.KEEP),
        (
            {
                "type": "Sequence",
                "decoders": [
                    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                    {"type": "ByteFallback"},
                    {"type": "Fuse"},
                ],
            },
            Spelling.SENTENCEPIECE,
            LeadingSpace.KEEP,
        ),
        (
            {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "_"}, "content": " "}]},
            Spelling.OTHER,
            LeadingSpace.KEEP,
        ),
    ],
)
def test_decoders_are_recognised(
    decoder: dict[str, object] | None, spelling: Spelling, leading_space: LeadingSpace
) -> None:
    table = build_token_table({"decoder": decoder, "added_tokens": []}, {"a": 0})
    assert (table.spelling, table.leading_space) == (spelling, leading_space)
