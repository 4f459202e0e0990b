"""The machine beyond the corpus: random texts, bounds, and when text comes out."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mindserve.chat.parsing.families.chatglm3 import CHATGLM3, MAX_PYTHON
from mindserve.chat.parsing.families.deepseek import DEEPSEEK_V3
from mindserve.chat.parsing.families.glm4 import GLM4
from mindserve.chat.parsing.families.hermes import HERMES
from mindserve.chat.parsing.families.llama3_json import LLAMA3_JSON
from mindserve.chat.parsing.families.qwen3_coder import QWEN3_CODER
from mindserve.chat.parsing.formats import PARSERS
from mindserve.chat.parsing.machine import AnswerParser, CallFormat
from mindserve.chat.parsing.pieces import Call, Content, Piece, PieceList, Reasoning
from mindserve.chat.parsing.steps import DONE, MAX_NAME, Deliver, Family, JsonObject, Literals, Text
from mindserve.chat.parsing.toolbox import Toolbox

TOOLS = Toolbox([("now", {}), ("nowhere", {}), ("f", {"properties": {"n": {"type": "integer"}}})])
CALL = '<tool_call>{"name": "now"}</tool_call>'
FAMILIES = {family.name: family for family in PARSERS.values()}


def parser_of(family: Family | None, **options: Any) -> AnswerParser:
    return AnswerParser(calls=CallFormat(family, TOOLS) if family else None, **options)


def parse(family: Family | None, parts: list[str], *, is_whole: bool = True, **options: Any) -> list[Piece]:
    parser = parser_of(family, **options)
    pieces = PieceList()
    for part in parts:
        pieces.add(parser.feed(part))
    pieces.add(parser.finish(is_whole=is_whole))
    return pieces.take()


LITERALS = sorted({literal for family in FAMILIES.values() for literal in family.literals()})
JSON = ["{", "}", '"', "{}", '{"n": 1}', '{"name": "now"}', '"name": "now", ', "\\", ":", "[", "]"]
WORDS = ["now", "f", "\n", " ", "\n ", "text", "🙂", "<", "function", "tool_call(n=1)", "tool_call("]
FRAGMENTS = st.sampled_from([*LITERALS, *JSON, *WORDS, "<think>", "</think>"])


@given(
    family=st.sampled_from(sorted(FAMILIES)),
    fragments=st.lists(FRAGMENTS, max_size=14),
    cuts=st.lists(st.integers(0, 120), max_size=8),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_the_cuts_of_any_text_make_no_difference(
    family: str, fragments: list[str], cuts: list[int], flags: tuple[bool, bool, bool]
) -> None:
    is_whole, has_reasoning, opened = flags
    text = "".join(fragments)
    options = {"has_reasoning": has_reasoning, "in_reasoning": has_reasoning and opened}
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    parts = [text[begin:end] for begin, end in itertools.pairwise(edges)]
    whole = parse(FAMILIES[family], [text], is_whole=is_whole, **options)
    assert parse(FAMILIES[family], parts, is_whole=is_whole, **options) == whole
    assert parse(FAMILIES[family], list(text), is_whole=is_whole, **options) == whole
    calls = [piece for piece in whole if isinstance(piece, Call)]
    assert all(call.name in TOOLS and isinstance(json.loads(call.arguments), dict) for call in calls)
    if not calls and not has_reasoning:
        assert "".join(piece.text for piece in whole if isinstance(piece, Content)) == text


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_the_tables_are_closed(family: Family) -> None:
    """Every state that is named exists, and no end of a text begins another one."""
    named = {*family.marks.values(), *({family.tool_line, family.at_start} - {None})}
    for step in family.table.values():
        match step:
            case Literals():
                named |= {*step.choices.values(), step.otherwise, step.at_end}
            case Text():
                named |= {*step.ends.values(), step.at_end}
                pairs = itertools.permutations(step.ends, 2)
                assert not any(longer.startswith(shorter) for longer, shorter in pairs)
            case JsonObject() | Deliver():
                named.add(step.next)
    assert named - {None, DONE} == set(family.table)


@pytest.mark.parametrize("text", ["a < b", "plain words", "{ not json", "no\nlines"])
@pytest.mark.parametrize("family", [HERMES, QWEN3_CODER, DEEPSEEK_V3, None])
def test_plain_text_comes_out_at_once(family: Family | None, text: str) -> None:
    assert parser_of(family).feed(text) == [Content(text)]


@pytest.mark.parametrize("family", [GLM4, CHATGLM3])
def test_a_line_comes_out_once_it_can_be_no_name(family: Family) -> None:
    parser = parser_of(family)
    assert parser.feed("no") == []
    assert parser.feed("t") == [Content("not")]
    assert parser.feed(" now") == [Content(" now")]


@pytest.mark.parametrize("name", ["\u3000", "a\u3000", "\u3000a", "a\x85", "a\xa0"])
@pytest.mark.parametrize("family", [GLM4, CHATGLM3])
def test_white_space_may_be_part_of_a_name(family: Family, name: str) -> None:
    parser = AnswerParser(calls=CallFormat(family, Toolbox([(name, {})])))
    assert parser.feed(f"{name} \r\n{{}}") + parser.finish(is_whole=True) == [Call(name, "{}")]


def test_an_object_that_is_no_call_comes_out_with_its_first_key() -> None:
    parser = parser_of(LLAMA3_JSON)
    assert parser.feed('{"answer') == []
    assert parser.feed('": ') == [Content('{"answer": ')]


def test_a_call_comes_out_with_its_closing_tag() -> None:
    parser = parser_of(HERMES)
    assert parser.feed(CALL[:-1]) == []
    assert parser.feed(">") == [Call("now", "{}")]


def test_a_tag_is_held_back_only_while_it_may_be_one() -> None:
    parser = parser_of(None, has_reasoning=True, in_reasoning=True)
    assert parser.feed("a</thin") == [Reasoning("a")]
    assert parser.feed("g") == [Reasoning("</thing")]


@pytest.mark.parametrize("excess", [0, 1])
def test_a_name_has_an_end_within_bounds(excess: int) -> None:
    tool = "n" * (MAX_NAME + excess)
    parser = AnswerParser(calls=CallFormat(QWEN3_CODER, Toolbox([(tool, {})])))
    pieces = parser.feed(f"<function={tool}></function>") + parser.finish(is_whole=True)
    assert [type(piece) for piece in pieces] == [Content if excess else Call]


def test_behind_a_name_without_an_end_calls_count_again() -> None:
    void = "<function=" + "x" * (MAX_NAME + 5)
    for parts in ([f"{void}<function=now></function>"], [void, "<function=now></function>"]):
        assert parse(QWEN3_CODER, parts) == [Content(void), Call("now", "{}")]


def test_python_has_an_end_within_bounds() -> None:
    code = f"tool_call(n='{'x' * MAX_PYTHON}')"
    text = f"now\n```python\n{code}```"
    assert parse(CHATGLM3, [text]) == [Content(text)] == parse(CHATGLM3, [text[:9000], text[9000:]])


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_deep_nesting_is_no_call(opening: str) -> None:
    text = f'<tool_call>{{"name": "now", "arguments": {{"a": {opening * 50_000}'
    text += ("]" if opening == "[" else "1" + "}") * 50_000 + "}}</tool_call>"
    assert parse(HERMES, [text]) == [Content(text)]


def test_deep_python_is_no_call() -> None:
    text = f"now\n```python\ntool_call(n={'[' * 20_000}{']' * 20_000})\n```"
    assert parse(CHATGLM3, [text]) == [Content(text)]


@pytest.mark.parametrize("in_reasoning", [True, False])
@pytest.mark.parametrize("opening", ["<think>", " \n<think>"])
def test_the_answer_may_open_its_thoughts_itself(opening: str, *, in_reasoning: bool) -> None:
    pieces = parse(None, [opening, "a</think>b"], has_reasoning=True, in_reasoning=in_reasoning)
    assert pieces == [Reasoning("a"), Content("b")]


def test_thoughts_end_once() -> None:
    text = "a</think>b</think><think>c"
    pieces = parse(None, [text], has_reasoning=True, in_reasoning=True)
    assert pieces == [Reasoning("a"), Content("b</think><think>c")]


def test_without_reasoning_tags_are_text() -> None:
    assert parse(None, ["<think>a</think>b"]) == [Content("<think>a</think>b")]


def test_thoughts_cut_short_leave_no_content() -> None:
    assert parse(HERMES, ["a</thin"], is_whole=False, has_reasoning=True, in_reasoning=True) == [Reasoning("a</thin")]


def test_of_two_tools_of_one_name_the_first_counts() -> None:
    tools = Toolbox([("f", {"properties": {"n": {"type": "integer"}}}), ("f", {})])
    assert tools.parameter("f", "n") == {"type": "integer"}


@pytest.mark.parametrize("schema", [{"properties": {"n": True}}, {"properties": [1]}, {}])
def test_odd_schemas_tell_nothing_of_a_parameter(schema: dict[str, Any]) -> None:
    assert Toolbox([("f", schema)]).parameter("f", "n") is None
