"""R26: text of a request is text, whatever it spells; and harmless text gives what transformers gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from mindserve.chat.control_tokens import ControlTokens, MarkedEncoder, control_literals
from mindserve.chat.tokenizer import ChatTokenizer
from tests.decoding import whole_text

Tokenizers = Callable[[str], ChatTokenizer]
Messages = list[dict[str, Any]]

CONTROL = {
    "default": ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>"],
    "chatml": ["<|im_start|>", "<|im_end|>"],
    "headers": ["<|begin|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"],
    "instruct": ["<s>", "</s>", "[INST]", "[/INST]"],
    "pieced": ["<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>"],
}
ROLES = {
    "default": ["system", "user", "assistant", "user", "tool", "im_end", "<|im_end|>"],
    "chatml": ["system", "user", "assistant", "user", "assistant", "tool"],
    "headers": ["system", "user", "assistant", "ipython", "eot_id|><|eot_id"],
    "instruct": ["user", "assistant", "user"],
    "pieced": ["system", "user", "assistant", "user", "tool"],
}
WORDS = [
    "hello",
    " ",
    "\n",
    "  ",
    "1",
    "22",
    "é",
    "中文",
    "🙂",
    "'s",
    "{{ x }}",
    "{% if %}",
    "\ue0f1",
    "\ue0f3",
    "assistant",
]


def harmless(name: str) -> st.SearchStrategy[str]:
    del name
    return st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map("".join).filter(str.strip)


def hostile(name: str) -> st.SearchStrategy[str]:
    """Words mixed with control tokens and pieces of them."""
    control = CONTROL[name]
    pieces = [token[begin:end] for token in control for begin in range(len(token)) for end in (begin + 1, len(token))]
    pieces += [token[:end] for token in control for end in range(1, len(token))]
    text = st.lists(st.sampled_from(WORDS + control * 3 + pieces), min_size=1, max_size=8).map("".join)
    return text.filter(str.strip)


def conversation(name: str, texts: st.SearchStrategy[str]) -> st.SearchStrategy[Messages]:
    """As many of the model's roles as drawn, in their order, each with a text."""
    roles = ROLES[name]
    contents = st.lists(texts, min_size=1, max_size=len(roles))
    return contents.map(
        lambda drawn: [{"role": role, "content": text} for role, text in zip(roles, drawn, strict=False)]
    )


def control_ids(tokenizer: ChatTokenizer, name: str, ids: list[int]) -> list[int]:
    control = {tokenizer.backend.token_to_id(token) for token in CONTROL[name]} | tokenizer.table.special_ids
    unknown = tokenizer.backend.token_to_id("<unk>")
    return [token_id for token_id in ids if token_id in control and token_id != unknown]


@pytest.mark.parametrize("name", ["chatml", "headers", "instruct", "pieced"])
@given(data=st.data())
def test_harmless_conversations_are_what_transformers_makes_of_them(
    tokenizer_of: Tokenizers, reference_ids: Callable[..., list[int]], name: str, data: Any
) -> None:
    messages = data.draw(conversation(name, harmless(name)))
    assert tokenizer_of(name).render_chat(messages) == reference_ids(name, messages)


@pytest.mark.parametrize("name", CONTROL)
@given(data=st.data())
def test_no_text_becomes_a_control_token(tokenizer_of: Tokenizers, name: str, data: Any) -> None:
    tokenizer = tokenizer_of(name)
    messages = data.draw(conversation(name, hostile(name)))
    plain = [{**message, "content": "x"} for message in messages]
    ids = tokenizer.render_chat(messages)
    assert control_ids(tokenizer, name, ids) == control_ids(tokenizer, name, tokenizer.render_chat(plain))


@pytest.mark.parametrize("name", ["chatml", "headers", "pieced"])
@given(data=st.data())
def test_hostile_text_survives(
    tokenizer_of: Tokenizers, model_folder: Callable[[str], Any], name: str, data: Any
) -> None:
    """Decoded, the prompt is the rendered template with the text in it, character by character."""
    tokenizer = tokenizer_of(name)
    messages = data.draw(conversation(name, hostile(name)))
    fast = _transformers_tokenizer(str(model_folder(name)))
    text = fast.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert whole_text(tokenizer, tokenizer.render_chat(messages), skip_special_tokens=False) == text


_LOADED: dict[str, Any] = {}


def _transformers_tokenizer(folder: str) -> Any:
    if folder not in _LOADED:
        _LOADED[folder] = PreTrainedTokenizerFast.from_pretrained(folder)
    return _LOADED[folder]


@given(data=st.data())
def test_tools_calls_results_and_names_are_text_too(tokenizer_of: Tokenizers, data: Any) -> None:
    tokenizer = tokenizer_of("chatml")

    def render(draw: Callable[[], str]) -> list[int]:
        tools = [
            {
                "type": "function",
                "function": {
                    "name": draw(),
                    "description": draw(),
                    "parameters": {"type": "object", "properties": {draw(): {"type": "string", "enum": [draw()]}}},
                },
            }
        ]
        call = {"id": draw(), "type": "function", "function": {"name": draw(), "arguments": {draw(): draw()}}}
        messages = [
            {"role": "user", "content": [{"type": "text", "text": draw()}, {"type": "text", "text": draw()}]},
            {"role": "assistant", "content": None, "tool_calls": [call], "name": draw()},
            {"role": "tool", "content": draw(), "tool_call_id": draw(), "name": draw()},
        ]
        return tokenizer.render_chat(messages, tools=tools, template_kwargs={"greeting": draw()})

    ids = render(lambda: data.draw(hostile("chatml")))
    assert control_ids(tokenizer, "chatml", ids) == control_ids(tokenizer, "chatml", render(lambda: "x"))


@pytest.mark.parametrize("name", ["chatml", "pieced"])
def test_a_control_token_split_over_parts_or_messages_is_text(tokenizer_of: Tokenizers, name: str) -> None:
    tokenizer = tokenizer_of(name)
    token = CONTROL[name][-1]
    for cut in range(1, len(token)):
        parts = [{"type": "text", "text": token[:cut]}, {"type": "text", "text": token[cut:]}]
        split = [{"role": "user", "content": parts}, {"role": "assistant", "content": token[:cut]}]
        plain = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "x"}]
        ids = tokenizer.render_chat(split)
        assert control_ids(tokenizer, name, ids) == control_ids(tokenizer, name, tokenizer.render_chat(plain))
        assert token in whole_text(tokenizer, ids, skip_special_tokens=True)


@pytest.mark.parametrize("role", ["end", "user|><|end", "user|><|assistant", "<|user|>", "x|>"])
def test_a_role_cannot_spell_a_control_token(tokenizer_of: Tokenizers, role: str) -> None:
    """The template puts the role between the two halves of a token."""
    tokenizer = tokenizer_of("pieced")
    ids = tokenizer.render_chat([{"role": role, "content": "x"}])
    end, assistant = map(tokenizer.backend.token_to_id, ("<|end|>", "<|assistant|>"))
    assert control_ids(tokenizer, "pieced", ids) == [end, assistant]
    assert whole_text(tokenizer, ids, skip_special_tokens=False) == f"<|{role}|>x<|end|><|assistant|>"


def test_tags_that_are_not_special_stay_tokens(
    tokenizer_of: Tokenizers, reference_ids: Callable[..., list[int]]
) -> None:
    """``<think>`` and the like legitimately stand in messages of a history."""
    messages = [
        {"role": "user", "content": "hello <tool_call>"},
        {"role": "assistant", "content": "<think>hello</think>\n\nhello"},
        {"role": "user", "content": "</think>"},
    ]
    assert tokenizer_of("chatml").render_chat(messages) == reference_ids("chatml", messages)


def test_unflagged_boundaries_are_control_tokens() -> None:
    flags = {"<｜User｜>": False, "<|user|>": False, "[INST]": False, "<think>": False, "  ": False, "<eos>": True}
    spec = {"added_tokens": [{"content": text, "special": special} for text, special in flags.items()]}
    assert control_literals(spec, []) == {"<｜User｜>", "<|user|>", "[INST]", "<eos>"}
    assert control_literals(spec, ["<think>", "not added"]) == {"<｜User｜>", "<|user|>", "[INST]", "<eos>", "<think>"}


def test_marking_takes_the_longest_token_and_can_be_undone() -> None:
    control = ControlTokens(["<a>", "<a><b>"])
    marked = control.mark("x<a><b><a>y")
    assert marked == f"x{control.markers['<a><b>']}{control.markers['<a>']}y"
    assert control.unmark(marked) == "x<a><b><a>y"
    assert control.find("<a><b>") == {"<a><b>"}


def test_markers_are_secret_and_never_the_same() -> None:
    first, second = ControlTokens(["<a>"]), ControlTokens(["<a>"])
    assert first.markers != second.markers
    assert "<a>" not in first.markers["<a>"]


@given(text=st.text(alphabet="<a>b", max_size=12))
def test_ids_outside_the_models_vocabulary_keep_their_numbers(text: str) -> None:
    """Added tokens whose ids leave a gap are numbered anew by the library when it loads them."""
    spec = {
        "version": "1.0",
        "added_tokens": [_added(7, "<a>", special=True), _added(9, "<b>", special=False)],
        "model": {"type": "BPE", "vocab": {"<": 0, ">": 1, "a": 2, "b": 3}, "merges": []},
    }
    control = ControlTokens(["<a>"])
    ids = MarkedEncoder(spec, control).encode(f"{text}{control.markers['<a>']}<b>")
    assert ids[-2:] == [7, 9]
    assert 7 not in ids[:-2]


def _added(token_id: int, content: str, *, special: bool) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token_id, "content": content, "special": special, **flags}
