"""One sequence from tokens to pieces: counts of reasoning, stop strings inside it, ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mindserve.chat.answer import SequenceAnswer
from mindserve.chat.output import SequenceText
from mindserve.chat.parsing.families.hermes import HERMES
from mindserve.chat.parsing.families.llama3_json import LLAMA3_JSON
from mindserve.chat.parsing.machine import AnswerParser, CallFormat
from mindserve.chat.parsing.pieces import Call, Content, Piece, PieceList, Reasoning
from mindserve.chat.parsing.toolbox import Toolbox
from mindserve.chat.tokenizer import ChatTokenizer
from mindserve_engine.types import FinishReason
from tests.serving import scripted_model

CALL = '<tool_call>{"name": "now"}</tool_call>'


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    """Bytes, and a few pieces: tags, and one that is more than a tag."""
    pieces = ["<think>", "</think>", "</think>\n\n", "idea"]
    return scripted_model(tmp_path_factory.mktemp("model"), [{"default": True, "pieces": pieces}]).tokenizer


def answer_of(
    tokenizer: ChatTokenizer, *, has_tools: bool = False, reasons: bool | None = None, **text: Any
) -> SequenceAnswer:
    """``reasons``: None, not looked for; else whether the prompt opened it."""
    calls = CallFormat(HERMES, Toolbox([("now", {})])) if has_tools else None
    parser = AnswerParser(calls=calls, has_reasoning=reasons is not None, in_reasoning=bool(reasons))
    return SequenceAnswer(SequenceText(tokenizer, **text), parser)


def ids(tokenizer: ChatTokenizer, *pieces: str) -> list[int]:
    """A piece is one token if there is one, else its bytes."""
    table = tokenizer.table.pieces
    return [
        token_id
        for piece in pieces
        for token_id in ([table.index(piece.encode())] if piece.encode() in table else piece.encode())
    ]


def feed(
    answer: SequenceAnswer, events: Sequence[list[int]], finish: FinishReason
) -> tuple[list[Piece], str | None, int]:
    """All pieces, the end, and how many tokens counted."""
    pieces, end, num_tokens = PieceList(), None, 0
    for number, event in enumerate(events):
        delta = answer.feed(event, finish if number == len(events) - 1 else None)
        assert end is None or delta.finish is None
        pieces.add(delta.pieces)
        end, num_tokens = end or delta.finish, num_tokens + delta.num_tokens
    return pieces.take(), end, num_tokens


@pytest.mark.parametrize(
    ("text", "finish", "end"),
    [
        (CALL, FinishReason.STOP_TOKEN, "tool_calls"),
        (CALL, FinishReason.LENGTH, "length"),
        ("text", FinishReason.STOP_TOKEN, "stop"),
        ("<tool_call>{", FinishReason.STOP_TOKEN, "stop"),
        ("<tool_call>{", FinishReason.LENGTH, "length"),
    ],
)
def test_why_it_ended(tokenizer: ChatTokenizer, text: str, finish: FinishReason, end: str) -> None:
    body = list(text.encode())
    last = [] if finish is FinishReason.LENGTH else [tokenizer.table.pieces.index(b"<|im_end|>")]
    assert feed(answer_of(tokenizer, has_tools=True), [body, last], finish)[1] == end


@pytest.mark.parametrize(
    ("opened", "pieces", "num_reasoning"),
    [
        (True, ["idea", "idea", "</think>", "x"], 2),
        (True, ["</think>", "x"], 0),
        (True, ["idea", "</think>\n\n", "x"], 1),
        (True, ["idea"], 1),
        (False, ["<think>", "idea", "</think>", "x"], 2),
        (False, ["\n", "<think>", "idea", "</think>", "x"], 3),
        (False, ["<think>", "idea"], 2),
        (False, ["x", "<think>", "idea"], 0),
    ],
)
@pytest.mark.parametrize("one_by_one", [True, False])
def test_tokens_of_reasoning_are_counted(
    tokenizer: ChatTokenizer, pieces: list[str], num_reasoning: int, *, opened: bool, one_by_one: bool
) -> None:
    tokens = ids(tokenizer, *pieces)
    answer = answer_of(tokenizer, reasons=opened)
    events = [[token] for token in tokens] if one_by_one else [tokens]
    _, _, num_tokens = feed(answer, events, FinishReason.LENGTH)
    assert (answer.num_reasoning_tokens, num_tokens) == (num_reasoning, len(tokens))


@pytest.mark.parametrize("include", [True, False])
def test_a_stop_string_inside_the_reasoning_is_kept(tokenizer: ChatTokenizer, *, include: bool) -> None:
    answer = answer_of(tokenizer, reasons=True, stops=["END"], include_stop=include)
    pieces, end, num_tokens = feed(answer, [list(b"so END it")], FinishReason.LENGTH)
    assert (pieces, end, num_tokens) == ([Reasoning("so END")], "stop", 6)


@pytest.mark.parametrize("include", [True, False])
def test_a_stop_string_behind_the_reasoning_is_cut_as_asked(tokenizer: ChatTokenizer, *, include: bool) -> None:
    answer = answer_of(tokenizer, reasons=True, stops=["END"], include_stop=include)
    pieces, end, _ = feed(answer, [ids(tokenizer, "idea", "</think>", "so END it")], FinishReason.LENGTH)
    assert (pieces, end) == ([Reasoning("idea"), Content("so END" if include else "so ")], "stop")


def test_the_tag_itself_can_be_the_stop_string(tokenizer: ChatTokenizer) -> None:
    answer = answer_of(tokenizer, reasons=True, stops=["</think>"])
    assert feed(answer, [ids(tokenizer, "idea", "</think>", "x")], FinishReason.LENGTH)[:2] == (
        [Reasoning("idea")],
        "stop",
    )


WORDS = st.lists(
    st.sampled_from(["idea", "END", "</think>", "<think>", "é🙂", CALL, "\n", "x", "EN", "</th"]), max_size=8
)


@given(
    words=WORDS, cuts=st.lists(st.integers(1, 9), min_size=1, max_size=20), opened=st.booleans(), stops=st.booleans()
)
def test_events_may_hold_any_number_of_tokens(
    tokenizer: ChatTokenizer, words: list[str], cuts: list[int], *, opened: bool, stops: bool
) -> None:
    options = {"has_tools": True, "reasons": opened, "stops": ["END"] if stops else []}
    tokens = list("".join(words).encode())
    whole, split = answer_of(tokenizer, **options), answer_of(tokenizer, **options)
    events, rest = [], tokens
    while rest:
        size = cuts[len(events) % len(cuts)]
        events.append(rest[:size])
        rest = rest[size:]
    assert feed(split, [*events, []], FinishReason.LENGTH) == feed(whole, [tokens, []], FinishReason.LENGTH)
    assert split.num_reasoning_tokens == whole.num_reasoning_tokens


def test_without_a_parser_all_is_content(tokenizer: ChatTokenizer) -> None:
    text = f"<think>a</think>{CALL}"
    pieces, end, _ = feed(SequenceAnswer(SequenceText(tokenizer)), [list(text.encode())], FinishReason.LENGTH)
    assert (pieces, end) == ([Content(text)], "length")


@pytest.mark.parametrize("one_by_one", [True, False])
@pytest.mark.parametrize("stops", [[], ["END"], ["<|im_end|>!"]])
def test_a_shown_end_of_the_sequence_is_no_part_of_a_call(
    tokenizer: ChatTokenizer, stops: list[str], *, one_by_one: bool
) -> None:
    """In this family a call is the whole answer."""
    call = '{"name": "now", "parameters": {}}'
    for text, said in ((call, Call("now", "{}")), ("idea", Content("idea")), ("<think>idea", Reasoning("idea"))):
        parser = AnswerParser(calls=CallFormat(LLAMA3_JSON, Toolbox([("now", {})])), has_reasoning=True)
        answer = SequenceAnswer(SequenceText(tokenizer, stops=stops, skip_special_tokens=False), parser)
        tokens = ids(tokenizer, text, "<|im_end|>")
        events = [[token] for token in tokens] if one_by_one else [tokens]
        end = Reasoning("<|im_end|>") if isinstance(said, Reasoning) else Content("<|im_end|>")
        expected = PieceList()
        expected.add([said, end])
        pieces, reason, num_tokens = feed(answer, events, FinishReason.EOS)
        assert pieces == expected.take()
        assert (reason, num_tokens) == ("tool_calls" if isinstance(said, Call) else "stop", len(tokens))


def test_after_the_end_nothing_comes(tokenizer: ChatTokenizer) -> None:
    answer = answer_of(tokenizer, has_tools=True)
    feed(answer, [list(CALL.encode())], FinishReason.LENGTH)
    assert answer.feed(list(b"more"), FinishReason.LENGTH).pieces == []


def test_special_tokens_that_mark_calls_are_seen(tokenizer: ChatTokenizer) -> None:
    """A vocabulary may flag the tags as special; the parser needs them, whatever is shown."""
    marks = frozenset({"<|im_start|>"})
    shown = tokenizer.showing(marks)
    tokens = [tokenizer.table.pieces.index(piece) for piece in (b"<|im_start|>", b"a", b"<|im_end|>")]
    assert SequenceText(shown).feed(tokens).text == "<|im_start|>a"
    assert SequenceText(tokenizer).feed(tokens).text == "a"
    assert tokenizer.showing(marks) is shown
    assert tokenizer.showing(frozenset({"<tool_call>"})) is tokenizer


def test_calls_are_pieces_in_order(tokenizer: ChatTokenizer) -> None:
    text = f"a{CALL}b{CALL}"
    pieces, _, _ = feed(answer_of(tokenizer, has_tools=True), [list(text.encode())], FinishReason.LENGTH)
    assert pieces == [Content("a"), Call("now", "{}"), Content("b"), Call("now", "{}")]


@pytest.mark.parametrize("reasons", [None, True])
@given(data=st.data())
def test_an_answer_ends_with_its_last_call(tokenizer: ChatTokenizer, reasons: bool | None, data: st.DataObject) -> None:
    """However the text is cut: what comes before it and it, and nothing behind."""
    thought = "</think>" if reasons else ""
    text = list(f"{thought}Look: {CALL}\n{CALL} and more {CALL}".encode())
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    events = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    for max_calls in (1, 2):
        calls = CallFormat(HERMES, Toolbox([("now", {})]))
        parser = AnswerParser(calls=calls, has_reasoning=reasons is not None, in_reasoning=bool(reasons))
        answer = SequenceAnswer(SequenceText(tokenizer), parser, max_calls=max_calls)
        pieces: list[Piece] = []
        for event in events:
            delta = answer.feed(event)
            pieces += delta.pieces
            if delta.finish is not None:
                break
        assert delta.finish == "tool_calls"
        assert "".join(piece.text for piece in pieces if isinstance(piece, Content)) == "Look: "
        assert sum(isinstance(piece, Call) for piece in pieces) == max_calls
        assert isinstance(pieces[-1], Call)
