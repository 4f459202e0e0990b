from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mindserve.chat.stop import StopSearch, StopStrings

ALPHABET = st.sampled_from(["a", "b", "c", "é", "🙂", "👩‍👧", "\n", " "])
TEXTS = st.lists(ALPHABET, max_size=40).map("".join)
STOPS = st.lists(st.lists(ALPHABET, min_size=1, max_size=5).map("".join), min_size=1, max_size=4)


def first_match(text: str, stops: list[str]) -> tuple[int, int] | None:
    """The definition, on the whole text: the earliest end, then the longest."""
    matches = [
        (start + len(stop), start) for stop in stops for start in range(len(text)) if text.startswith(stop, start)
    ]
    if not matches:
        return None
    end, start = min(matches)
    return start, end


def search(pieces: list[str], stops: list[str], *, include: bool) -> tuple[str, str | None, list[str]]:
    finder = StopSearch(stops, include=include)
    given_out = []
    for piece in pieces:
        result = finder.feed(piece)
        given_out.append(result.text)
        if result.matched is not None:
            return "".join(given_out), result.matched, given_out
    given_out.append(finder.finish())
    return "".join(given_out), None, given_out


def cut(text: str, points: list[int]) -> list[str]:
    edges = [0, *sorted(point % (len(text) + 1) for point in points), len(text)]
    return [text[begin:end] for begin, end in itertools.pairwise(edges)]


@given(text=TEXTS, stops=STOPS, points=st.lists(st.integers(0, 1000), max_size=12), include=st.booleans())
@example(text="xabyz", stops=["ab", "xabyz"], points=[1, 2, 3, 4], include=False)
@example(text="aab", stops=["ab", "b", "aab"], points=[1, 2], include=True)
@example(text="ababac", stops=["abac"], points=[1, 2, 3, 4, 5], include=False)
def test_any_split_gives_what_the_definition_says(
    text: str, stops: list[str], points: list[int], *, include: bool
) -> None:
    shown, matched, _ = search(cut(text, points), stops, include=include)
    expected = first_match(text, stops)
    if expected is None:
        assert (shown, matched) == (text, None)
    else:
        start, end = expected
        assert matched == text[start:end]
        assert shown == text[: end if include else start]


def test_every_split_of_a_short_text() -> None:
    text, stops = "aabaab🙂ab", ["ab🙂", "aab🙂a", "baaa"]
    for mask in range(2 ** (len(text) - 1)):
        points = [position + 1 for position in range(len(text) - 1) if mask >> position & 1]
        assert search(cut(text, points), stops, include=False)[:2] == ("aaba", "ab🙂")


@given(text=TEXTS, stops=STOPS)
def test_only_text_that_could_begin_a_stop_string_is_held_back(text: str, stops: list[str]) -> None:
    finder = StopSearch(stops)
    shown = ""
    for position, character in enumerate(text):
        result = finder.feed(character)
        shown += result.text
        if result.matched is not None:
            return
        seen = text[: position + 1]
        held = seen[len(shown) :]
        beginnings = [
            seen[-size:] for size in range(1, len(seen) + 1) if any(stop.startswith(seen[-size:]) for stop in stops)
        ]
        assert held == (beginnings[-1] if beginnings else "")


def test_nothing_comes_after_the_stop_string() -> None:
    result = StopSearch(["END"], include=True).feed("one END two")
    assert (result.text, result.matched) == ("one END", "END")


def test_sequences_share_compiled_strings() -> None:
    strings = StopStrings(["ab", "ab"])
    first, second = StopSearch(strings), StopSearch(strings)
    first.feed("xa")
    assert second.feed("b").matched is None
    assert first.feed("b").matched == "ab"


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopStrings(["a", ""])


def test_a_hostile_stop_string_costs_linear_work() -> None:
    """Steps are counted through the table that every step reads."""

    class Counting(list[dict[str, int]]):
        num_reads = 0

        def __getitem__(self, index):  # type: ignore[no-untyped-def]
            Counting.num_reads += 1
            return super().__getitem__(index)

    strings = StopStrings(["a" * 32_767 + "b"])
    strings.children = Counting(strings.children)
    finder = StopSearch(strings)
    text = ("a" * 32_767 + "c") * 3
    shown = "".join(finder.feed(piece).text for piece in (text[i : i + 7] for i in range(0, len(text), 7)))
    assert shown + finder.finish() == text
    assert Counting.num_reads <= 3 * len(text)
