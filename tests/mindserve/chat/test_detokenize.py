from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mindserve.chat.detokenize import Detokenizer
from mindserve.chat.tokenizer import ChatTokenizer
from tests.decoding import whole_text

Tokenizers = Callable[[str], ChatTokenizer]

TEXTS = st.lists(
    st.sampled_from(
        ["hello", " ", "  ", "\n", "é", "e\u0301", "中文", "🙂", "👩‍👧‍👦", "🏳️‍🌈", "1", "'s", "\t", "<|im_end|>", "▁"]
    )
    | st.text(max_size=3),
    max_size=12,
).map("".join)
CUTS = st.lists(st.integers(1, 4), min_size=1, max_size=50)

BYTE_LEVEL = ["default", "chatml", "headers"]


def in_pieces(tokenizer: ChatTokenizer, ids: list[int], cuts: list[int], *, skip: bool) -> str:
    detokenizer = Detokenizer(tokenizer, skip_special_tokens=skip)
    text, position, turn = "", 0, 0
    while position < len(ids):
        size = cuts[turn % len(cuts)]
        text += detokenizer.feed(ids[position : position + size])
        position, turn = position + size, turn + 1
    return text + detokenizer.finish()


def random_ids(tokenizer: ChatTokenizer) -> st.SearchStrategy[list[int]]:
    some_special = sorted(tokenizer.table.special_ids)
    any_id = st.integers(0, tokenizer.vocab_size - 1)
    return st.lists(any_id | st.sampled_from(some_special) if some_special else any_id, max_size=30)


@pytest.mark.parametrize("name", [*BYTE_LEVEL, "forgetful", "wordpiece"])
@given(data=st.data())
def test_pieces_of_random_tokens_join_to_the_librarys_decode(tokenizer_of: Tokenizers, name: str, data: Any) -> None:
    tokenizer = tokenizer_of(name)
    ids = data.draw(random_ids(tokenizer))
    skip = data.draw(st.booleans())
    assert in_pieces(tokenizer, ids, data.draw(CUTS), skip=skip) == tokenizer.backend.decode(
        ids, skip_special_tokens=skip
    )


@pytest.mark.parametrize("name", [*BYTE_LEVEL, "instruct", "forgetful", "wordpiece"])
@given(text=TEXTS, cuts=CUTS)
def test_pieces_of_encoded_text_join_to_the_librarys_decode(
    tokenizer_of: Tokenizers, name: str, text: str, cuts: list[int]
) -> None:
    tokenizer = tokenizer_of(name)
    ids = tokenizer.backend.encode(text, add_special_tokens=False).ids
    for skip in (True, False):
        assert in_pieces(tokenizer, ids, cuts, skip=skip) == tokenizer.backend.decode(ids, skip_special_tokens=skip)


@pytest.mark.parametrize("name", BYTE_LEVEL)
@given(text=TEXTS, cuts=CUTS)
def test_byte_level_text_survives(tokenizer_of: Tokenizers, name: str, text: str, cuts: list[int]) -> None:
    tokenizer = tokenizer_of(name)
    known = {piece[0] for piece in tokenizer.table.pieces if len(piece) == 1}
    assume(known.issuperset(text.encode()))  # the default model has no token for some bytes no text of today holds
    ids = tokenizer.backend.encode(text, add_special_tokens=False).ids
    assert in_pieces(tokenizer, ids, cuts, skip=False) == text


@given(data=st.data())
def test_any_split_of_byte_pieces_gives_the_same_text(tokenizer_of: Tokenizers, data: Any) -> None:
    """Byte pieces of a SentencePiece vocabulary that make no character become U+FFFD as in any other text."""
    tokenizer = tokenizer_of("instruct")
    ids = data.draw(random_ids(tokenizer))
    whole = whole_text(tokenizer, ids, skip_special_tokens=True)
    assert in_pieces(tokenizer, ids, data.draw(CUTS), skip=True) == whole
    pieces = [b"" if token_id in tokenizer.table.special_ids else tokenizer.token_bytes(token_id) for token_id in ids]
    assert whole == b"".join(pieces).removeprefix(b" ").decode("utf-8", "replace")


def test_half_a_character_waits_for_the_rest(tokenizer_of: Tokenizers) -> None:
    tokenizer = tokenizer_of("chatml")
    ids = tokenizer.backend.encode("aꙮb", add_special_tokens=False).ids
    detokenizer = Detokenizer(tokenizer)
    assert [detokenizer.feed([token_id]) for token_id in ids] == ["a", "", "", "ꙮ", "b"]


def test_half_a_character_at_the_end_is_flushed(tokenizer_of: Tokenizers) -> None:
    tokenizer = tokenizer_of("chatml")
    ids = tokenizer.backend.encode("aꙮ", add_special_tokens=False).ids[:-1]
    detokenizer = Detokenizer(tokenizer)
    assert detokenizer.feed(ids) == "a"
    assert detokenizer.finish() == "�"


def test_ids_beyond_the_vocabulary_add_nothing(tokenizer_of: Tokenizers) -> None:
    for name in ("chatml", "instruct", "forgetful"):
        tokenizer = tokenizer_of(name)
        ids = tokenizer.backend.encode("hello you", add_special_tokens=False).ids
        assert in_pieces(tokenizer, [10**6, ids[0], 10**9, *ids[1:], -1], [1], skip=True) == whole_text(tokenizer, ids)


def test_special_tokens_show_only_when_asked_for(tokenizer_of: Tokenizers) -> None:
    tokenizer = tokenizer_of("default")
    assert Detokenizer(tokenizer, skip_special_tokens=True).feed([2, 28]) == ","
    assert Detokenizer(tokenizer, skip_special_tokens=False).feed([2, 28]) == "<|im_end|>,"
