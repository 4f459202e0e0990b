from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mindserve.chat.output import SequenceText, TextDelta
from mindserve.chat.stop import StopSearch, StopStrings
from mindserve.chat.tokenizer import ChatTokenizer
from mindserve_engine.types import FinishReason
from tests.decoding import whole_text

Tokenizers = Callable[[str], ChatTokenizer]
END = "<|im_end|>"


@pytest.fixture(scope="module")
def tokenizer(tokenizer_of: Tokenizers) -> ChatTokenizer:
    return tokenizer_of("chatml")


def ids_of(tokenizer: ChatTokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.backend.encode(text, add_special_tokens=False).ids
    return ids


def test_plain_text(tokenizer: ChatTokenizer) -> None:
    sequence = SequenceText(tokenizer)
    assert sequence.feed(ids_of(tokenizer, "hel")) == TextDelta(text="hel", num_tokens=len(ids_of(tokenizer, "hel")))
    assert sequence.feed([], FinishReason.LENGTH) == TextDelta(text="", finish="length")


@pytest.mark.parametrize(("skip", "shown"), [(True, "hi"), (False, f"hi{END}")])
def test_eos_is_shown_only_where_special_tokens_are(tokenizer: ChatTokenizer, shown: str, *, skip: bool) -> None:
    ids = ids_of(tokenizer, f"hi{END}")
    delta = SequenceText(tokenizer, skip_special_tokens=skip).feed(ids, FinishReason.EOS)
    num_shown = len(shown) - len("hi")
    assert delta == TextDelta(text=shown, finish="stop", num_tokens=len(ids), num_eos_characters=num_shown)


def test_an_eos_that_is_not_flagged_special_is_hidden_too(tokenizer: ChatTokenizer) -> None:
    ids = ids_of(tokenizer, "hi<think>")
    assert SequenceText(tokenizer).feed(ids, FinishReason.EOS).text == "hi"


@pytest.mark.parametrize(("include", "shown"), [(True, "hi!"), (False, "hi")])
def test_a_stop_token_is_shown_only_where_stop_strings_are(
    tokenizer: ChatTokenizer, shown: str, *, include: bool
) -> None:
    ids = [*ids_of(tokenizer, "hi"), *ids_of(tokenizer, "!")]
    delta = SequenceText(tokenizer, include_stop=include).feed(ids, FinishReason.STOP_TOKEN)
    assert delta == TextDelta(text=shown, finish="stop", num_tokens=len(ids))


@pytest.mark.parametrize(("include", "shown"), [(True, "one END"), (False, "one ")])
def test_a_stop_string_cuts_the_text_and_later_tokens(tokenizer: ChatTokenizer, shown: str, *, include: bool) -> None:
    ids = ids_of(tokenizer, "one END two three")
    last = next(size for size in range(len(ids)) if "END" in whole_text(tokenizer, ids[:size]))
    sequence = SequenceText(tokenizer, stops=["END"], include_stop=include)
    delta = sequence.feed(ids)
    assert delta == TextDelta(text=shown, finish="stop", num_tokens=last, cut="" if include else "END")
    assert sequence.feed(ids, FinishReason.LENGTH) == TextDelta(text="")


@pytest.mark.parametrize("finish", [FinishReason.LENGTH, FinishReason.EOS])
def test_a_stop_string_in_the_last_tokens_is_a_normal_end(tokenizer: ChatTokenizer, finish: FinishReason) -> None:
    ids = ids_of(tokenizer, f"one END{END}" if finish is FinishReason.EOS else "one END")
    delta = SequenceText(tokenizer, stops=["END"]).feed(ids, finish)
    assert (delta.text, delta.finish) == ("one ", "stop")
    assert delta.num_tokens == len(ids_of(tokenizer, "one END"))


@pytest.mark.parametrize("finish", [FinishReason.LENGTH, FinishReason.EOS, FinishReason.STOP_TOKEN])
def test_held_text_comes_out_at_the_end(tokenizer: ChatTokenizer, finish: FinishReason) -> None:
    sequence = SequenceText(tokenizer, stops=["END"])
    assert sequence.feed(ids_of(tokenizer, "one EN")).text == "one "
    last = [] if finish is FinishReason.LENGTH else ids_of(tokenizer, END)
    assert sequence.feed(last, finish).text == "EN"


def test_half_a_character_at_the_end_comes_out(tokenizer: ChatTokenizer) -> None:
    for stops in ([], ["END"]):
        sequence = SequenceText(tokenizer, stops=stops)
        sequence.feed(ids_of(tokenizer, "ꙮ")[:-1])
        assert sequence.feed([], FinishReason.LENGTH) == TextDelta(text="�", finish="length")


def test_a_flushed_half_character_can_complete_a_stop_string(tokenizer: ChatTokenizer) -> None:
    sequence = SequenceText(tokenizer, stops=["�"])
    ids = ids_of(tokenizer, "aꙮ")[:-1]
    delta = sequence.feed(ids, FinishReason.LENGTH)
    assert delta == TextDelta(text="a", finish="stop", num_tokens=len(ids), cut="�")


def test_special_tokens_can_be_stop_strings_where_they_are_shown(tokenizer: ChatTokenizer) -> None:
    ids = ids_of(tokenizer, f"hi{END}")
    delta = SequenceText(tokenizer, skip_special_tokens=False, stops=[END]).feed(ids, FinishReason.EOS)
    assert (delta.text, delta.finish) == ("hi", "stop")


WORDS = st.lists(
    st.sampled_from(["stop", " ", "st", "op", "🙂", "é", "中文", "\n", "e\u0301", "👩‍👧", END]), max_size=8
)


@given(
    words=WORDS,
    stops=st.lists(st.sampled_from(["stop", "op s", "🙂", "\n", "文", "\u0301", "tt"]), max_size=3),
    cuts=st.lists(st.integers(1, 5), min_size=1, max_size=20),
    flags=st.tuples(st.booleans(), st.booleans()),
    finish=st.sampled_from(FinishReason),
)
def test_any_split_into_events_gives_the_text_of_the_whole(
    tokenizer_of: Tokenizers,
    words: list[str],
    stops: list[str],
    cuts: list[int],
    flags: tuple[bool, bool],
    finish: FinishReason,
) -> None:
    tokenizer = tokenizer_of("chatml")
    skip, include = flags
    body = ids_of(tokenizer, "".join(words))
    ids = body if finish is FinishReason.LENGTH else [*body, *ids_of(tokenizer, END)]
    sequence = SequenceText(tokenizer, skip_special_tokens=skip, stops=StopStrings(stops), include_stop=include)
    deltas = list(_events(sequence, ids, cuts, finish))

    shows_last = {FinishReason.EOS: not skip, FinishReason.STOP_TOKEN: include, FinishReason.LENGTH: True}[finish]
    whole = tokenizer.backend.decode(ids if shows_last else body, skip_special_tokens=skip)
    expected = StopSearch(stops, include=include).feed(whole) if stops else None
    matched = expected.matched if expected else None
    held = "" if matched or not expected else whole[len(expected.text) :]
    assert "".join(delta.text for delta in deltas) == (expected.text + held if expected else whole)
    assert [delta.finish for delta in deltas if delta.finish] == [
        "stop" if matched or finish is not FinishReason.LENGTH else "length"
    ]
    assert sum(delta.num_tokens for delta in deltas) <= len(ids)
    if matched is None:
        assert sum(delta.num_tokens for delta in deltas) == len(ids)


def _events(sequence: SequenceText, ids: list[int], cuts: list[int], finish: FinishReason) -> Any:
    position, turn = 0, 0
    while True:
        size = cuts[turn % len(cuts)]
        position, turn, chunk = position + size, turn + 1, ids[position : position + size]
        yield sequence.feed(chunk, finish if position >= len(ids) else None)
        if position >= len(ids):
            return
