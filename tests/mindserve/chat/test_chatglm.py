"""ChatGLM3's tokenizer and prompts, against the SentencePiece library and the published way of joining turns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mindserve.chat.detokenize import Detokenizer
from mindserve.chat.parsing.formats import choose_format
from mindserve.chat.parsing.machine import AnswerParser, CallFormat
from mindserve.chat.parsing.pieces import Call
from mindserve.chat.parsing.toolbox import Toolbox
from mindserve.chat.tokenizer import ChatTokenizer, load_tokenizer
from mindserve.errors import RequestRefused, StartupError
from tests import tiny_chatglm
from tests.tiny_chatglm import SPECIAL, ReferenceTokenizer

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_current_weather",
        "description": "今天 weather",
        "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
    },
}
INTRO = "Answer the following questions as best as you can. You have access to the following tools:\n"
USER = {"role": "user", "content": "北京 weather?"}
SPELLINGS = [*SPECIAL, "<sop>", "<eop>", "<s>", "</s>", "<unk>"]
TEXTS = st.lists(
    st.sampled_from(
        [*SPELLINGS, " ", "\n", "people", "aesop", "你好", "▁", "🙂", "\x00", "é", "\t", "[gMASK]sop<|user|>"]
    )
    | st.text(max_size=6),
    max_size=8,
).map("".join)

_VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁"), max_size=6).filter(
    lambda text: "```" not in text
)
"""The vocabulary writes spaces as ▁; a fence inside a text would end the call."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("chatglm")
    (place / "tokenizer_config.json").write_text(json.dumps(tiny_chatglm.TOKENIZER_CONFIG))
    tiny_chatglm.write_vocabulary(place / "tokenizer.model")
    return place


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> ChatTokenizer:
    return load_tokenizer(folder)


@pytest.fixture(scope="module")
def reference(folder: Path) -> ReferenceTokenizer:
    return ReferenceTokenizer(folder)


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": "1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def test_special_tokens_are_numbered_behind_the_vocabulary(
    tokenizer: ChatTokenizer, reference: ReferenceTokenizer
) -> None:
    assert {"sop", "eop"} <= {reference.pieces.id_to_piece(i) for i in range(reference.pieces.vocab_size())}
    ours = {text.strip("<>") if text in ("<sop>", "<eop>") else text: i for text, i in tokenizer.special_tokens.items()}
    assert reference.special.items() <= ours.items()
    assert tokenizer.vocab_size == reference.pieces.vocab_size() + len(SPECIAL)


@given(text=TEXTS)
def test_text_is_cut_as_the_library_cuts_it(tokenizer: ChatTokenizer, reference: ReferenceTokenizer, text: str) -> None:
    """So no text of a request becomes a special token: the library does not know them."""
    history = [{"role": "system", "content": text}, {"role": "user", "content": text}]
    turns = [reference.turn("system", text), reference.turn("user", text)]
    assert tokenizer.render_chat(history) == reference.prompt(*turns)


@given(text=TEXTS)
def test_decoding_gives_the_text_back(tokenizer: ChatTokenizer, reference: ReferenceTokenizer, text: str) -> None:
    """But for white space at its beginning, with which the model opens every answer."""
    ids = [*reference.pieces.encode("\n"), *reference.pieces.encode(text)]
    pieces = Detokenizer(tokenizer)
    joined = "".join(pieces.feed([token]) for token in ids) + pieces.finish()
    assert joined == text.replace("▁", " ").lstrip(" \n\r\t")  # the library writes spaces so
    assert tokenizer.backend.decode(ids) == joined


def test_a_conversation_with_tools(tokenizer: ChatTokenizer, reference: ReferenceTokenizer) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        USER,
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [call("get_current_weather", location="北京", n=[1, True])],
        },
        {"role": "tool", "tool_call_id": "1", "content": '{"t": 22}'},
        {"role": "assistant", "content": "22 degrees."},
        {"role": "user", "content": "Thanks"},
    ]
    listed = json.dumps([WEATHER["function"]], indent=4, ensure_ascii=False)
    called = "```python\ntool_call(location='北京', n=[1, True])\n```"
    assert tokenizer.render_chat(messages, tools=[WEATHER]) == reference.prompt(
        reference.turn("system", f"Be brief.\n{INTRO}{listed}"),
        reference.turn("user", "北京 weather?"),
        reference.turn("assistant", "I look."),
        reference.turn("assistant", called, "get_current_weather"),
        reference.turn("observation", '{"t": 22}'),
        reference.turn("assistant", "22 degrees."),
        reference.turn("user", "Thanks"),
    )


def test_tools_without_a_system_message(tokenizer: ChatTokenizer, reference: ReferenceTokenizer) -> None:
    listed = json.dumps([WEATHER["function"]], indent=4, ensure_ascii=False)
    expected = reference.prompt(reference.turn("system", INTRO + listed), reference.turn("user", USER["content"]))
    assert tokenizer.render_chat([USER], tools=[WEATHER]) == expected


def test_other_places_of_system_messages(tokenizer: ChatTokenizer, reference: ReferenceTokenizer) -> None:
    later = {"role": "developer", "content": "Now in verse."}
    expected = reference.prompt(reference.turn("user", USER["content"]), reference.turn("system", "Now in verse."))
    assert tokenizer.render_chat([USER, later]) == expected


@given(
    arguments=st.dictionaries(
        st.sampled_from(["city", "from", "class", "a-b", "城市", "x y", ""]) | st.text("ab -'äβ", max_size=3),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _VALUES,
            lambda inner: (
                st.lists(inner, max_size=2) | st.dictionaries(st.text("ab'\"\\", max_size=2), inner, max_size=2)
            ),
            max_leaves=4,
        ),
        max_size=3,
    )
)
def test_calls_are_read_as_they_are_written(tokenizer: ChatTokenizer, arguments: dict[str, Any]) -> None:
    """What the prompt shows of a call is a call again when the model writes it so."""
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": [call("now", **arguments)]}]
    ids = tokenizer.render_chat(messages)
    start, end = (len(ids) - ids[::-1].index(tokenizer.special_tokens["<|assistant|>"], since) for since in (1, 0))
    form = choose_format("chatglm", tokenizer.template_source(with_tools=True))
    assert form.family is not None
    parser = AnswerParser(calls=CallFormat(form.family, Toolbox([("now", {})])))
    written = Detokenizer(tokenizer.showing(form.marks))
    pieces = [piece for token in ids[start : end - 1] for piece in parser.feed(written.feed([token]))]
    pieces += parser.feed(written.finish()) + parser.finish(is_whole=True)
    assert [(type(piece), json.loads(piece.arguments)) for piece in pieces if isinstance(piece, Call)] == [
        (Call, arguments)
    ]


def test_the_turn_of_a_thought_is_no_part_of_the_content(
    tokenizer: ChatTokenizer, reference: ReferenceTokenizer
) -> None:
    """As the model answers: an empty line, the thought, and in a turn of its own the call."""
    answer = reference.turn("assistant", "I look.") + reference.turn("assistant", "```python\ntool_call()\n```", "now")
    form = choose_format("chatglm", tokenizer.template_source(with_tools=True))
    assert form.family is not None
    assert form.family.name == "chatglm3"
    parser = AnswerParser(calls=CallFormat(form.family, Toolbox([("now", {})])))
    written = Detokenizer(tokenizer.showing(form.marks))
    pieces = [*parser.feed(written.feed(answer[1:])), *parser.finish(is_whole=True)]
    assert [str(getattr(piece, "text", "")) for piece in pieces if not isinstance(piece, Call)] == ["I look.\n"]
    assert [piece.name for piece in pieces if isinstance(piece, Call)] == ["now"]


def test_the_published_template_without_tools_gives_way(folder: Path, tmp_path: Path) -> None:
    published = (
        "{% for message in messages %}{% if loop.first %}[gMASK]sop<|{{ message['role'] }}|>\n {{ message['content'] }}"
        "{% else %}<|{{ message['role'] }}|>\n {{ message['content'] }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    (tmp_path / "tokenizer.model").write_bytes((folder / "tokenizer.model").read_bytes())
    config = {**tiny_chatglm.TOKENIZER_CONFIG, "chat_template": published}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ours = load_tokenizer(folder)
    assert load_tokenizer(tmp_path).template_source(with_tools=True) == ours.template_source(with_tools=True)
    operators = load_tokenizer(folder, chat_template=published)
    messages = [USER, {"role": "assistant", "content": "a"}, USER]
    assert operators.render_chat(messages) == ours.render_chat(messages)
    with pytest.raises(RequestRefused, match="does not render tools"):
        operators.render_chat([USER], tools=[WEATHER])


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\xff\xff not a model", "not a SentencePiece model"), (b"", "not a SentencePiece vocabulary of byte pairs")],
)
def test_a_broken_vocabulary_is_one_clear_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tiny_chatglm.TOKENIZER_CONFIG))
    (tmp_path / "tokenizer.model").write_bytes(content)
    with pytest.raises(StartupError, match=message) as caught:
        load_tokenizer(tmp_path)
    assert "\n" not in str(caught.value)


def test_other_vocabularies_are_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tiny_chatglm.TOKENIZER_CONFIG))
    tiny_chatglm.write_vocabulary(tmp_path / "tokenizer.model", model_type="unigram", vocab_size=330)
    with pytest.raises(StartupError, match="of byte pairs"):
        load_tokenizer(tmp_path)
    tiny_chatglm.write_vocabulary(tmp_path / "tokenizer.model", user_defined_symbols=["<|user|>"])
    with pytest.raises(StartupError, match=r"the piece '<\|user\|>' has the name of a special token"):
        load_tokenizer(tmp_path)
