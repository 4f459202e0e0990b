from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mindserve.chat.dropped import _search_of
from mindserve.chat.template import ChatTemplate, TemplateTimeout
from mindserve.chat.tokenizer import ChatTokenizer
from mindserve.errors import RefusalKind, RequestRefused
from tests.decoding import whole_text

Tokenizers = Callable[[str], ChatTokenizer]
USER = {"role": "user", "content": "hi"}
ASSISTANT = {"role": "assistant", "content": "hi"}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}},
}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


def refusal(tokenizer: ChatTokenizer, *messages: dict[str, Any], **kwargs: Any) -> RequestRefused:
    with pytest.raises(RequestRefused) as error:
        tokenizer.render_chat(list(messages), **kwargs)
    return error.value


def test_a_role_that_the_template_skips_is_refused_although_its_text_stands_elsewhere(tokenizer_of: Tokenizers) -> None:
    error = refusal(tokenizer_of("forgetful"), USER, {"role": "system", "content": "hi"}, USER)
    assert error.field == "messages[1].role"
    assert "'system'" in error.message


def test_a_tool_result_that_the_template_skips_is_refused(tokenizer_of: Tokenizers) -> None:
    assert refusal(tokenizer_of("forgetful"), USER, {"role": "tool", "content": "42"}).field == "messages[1].role"


def test_tool_calls_that_the_template_skips_are_refused(tokenizer_of: Tokenizers) -> None:
    assistant = {"role": "assistant", "content": "hi", "tool_calls": [CALL]}
    for name in ("forgetful", "default"):
        assert refusal(tokenizer_of(name), USER, assistant).field == "messages[1].tool_calls[0]"


def test_tools_that_the_template_skips_are_refused(tokenizer_of: Tokenizers) -> None:
    assert refusal(tokenizer_of("default"), USER, tools=[TOOL]).field == "tools"


def test_any_role_that_is_rendered_passes(tokenizer_of: Tokenizers) -> None:
    tokenizer = tokenizer_of("headers")
    text = whole_text(
        tokenizer, tokenizer.render_chat([{"role": "ipython", "content": "hi"}]), skip_special_tokens=True
    )
    assert "ipython" in text


def test_a_whole_tool_conversation_passes(tokenizer_of: Tokenizers, reference_ids: Callable[..., list[int]]) -> None:
    messages = [
        {"role": "system", "content": "be brief"},
        USER,
        {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]},
        {"role": "tool", "tool_call_id": "c", "content": "42"},
        ASSISTANT,
        USER,
    ]
    parsed = {**CALL, "function": {"name": "f", "arguments": {"a": 1}}}
    reference = [*messages[:2], {"role": "assistant", "content": "", "tool_calls": [parsed, parsed]}, *messages[3:]]
    assert tokenizer_of("chatml").render_chat(messages, tools=[TOOL]) == reference_ids(
        "chatml", reference, tools=[TOOL]
    )


@pytest.mark.parametrize("tools", [None, []])
def test_no_tools_are_none(
    tokenizer_of: Tokenizers, reference_ids: Callable[..., list[int]], tools: list[dict[str, Any]] | None
) -> None:
    assert tokenizer_of("chatml").render_chat([USER], tools=tools) == reference_ids("chatml", [USER])


def test_text_that_a_template_cuts_on_purpose_is_not_missed(tokenizer_of: Tokenizers) -> None:
    """Templates drop the thoughts of a history; the message itself is there."""
    thoughts = {"role": "assistant", "content": "<think>\nlong thoughts\n</think>\n\nanswer"}
    tokenizer = tokenizer_of("chatml")
    text = whole_text(tokenizer, tokenizer.render_chat([USER, thoughts, USER]))
    assert "long thoughts" not in text
    assert "answer" in text


def test_where_the_template_takes_no_other_text_its_own_output_is_searched(
    tokenizer_of: Tokenizers, model_folder: Callable[[str], Any]
) -> None:
    from mindserve.chat.tokenizer import load_tokenizer

    picky = (
        "{% for m in messages %}{% if m.content not in ('yes', 'no') %}{{ raise_exception('yes or no') }}{% endif %}"
        "{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"
    )
    tokenizer = load_tokenizer(model_folder("chatml"), chat_template=picky)
    assert whole_text(tokenizer, tokenizer.render_chat([{"role": "user", "content": "yes"}])) == "yes"
    error = refusal(tokenizer, {"role": "user", "content": "yes"}, {"role": "system", "content": "no"})
    assert error.field == "messages[1].role"


class Searched(str):
    """A prompt that counts the characters that are looked at."""

    num_characters = 0

    def find(self, text: str, start: int = 0, /) -> int:  # type: ignore[override]
        place = super().find(text, start)
        self.num_characters += (len(self) if place < 0 else place + len(text)) - start
        return place


def test_the_search_of_a_prompt_is_linear() -> None:
    texts = [f"message {number}" for number in range(1000)]
    prompt = Searched(" ".join(texts))
    is_rendered = _search_of(prompt, math.inf)
    assert all(is_rendered(text) for text in texts * 2)
    assert prompt.num_characters <= len(prompt)


@given(st.text("ab ", max_size=20), st.lists(st.text("ab", max_size=4), max_size=8))
def test_the_search_finds_what_is_there(prompt: str, texts: list[str]) -> None:
    is_rendered = _search_of(prompt, math.inf)
    assert [is_rendered(text) for text in texts] == [text in prompt for text in texts]


def test_the_search_ends_with_the_time() -> None:
    with pytest.raises(TemplateTimeout):
        _search_of("a prompt", -math.inf)("prompt")


def test_a_prompt_that_is_too_long_is_refused_before_it_is_rendered_again(
    tokenizer_of: Tokenizers, monkeypatch: pytest.MonkeyPatch
) -> None:
    renderings: list[int] = []
    render = ChatTemplate.render

    def counted(template: ChatTemplate, messages: list[dict[str, Any]], **kwargs: Any) -> str:
        renderings.append(len(messages))
        return render(template, messages, **kwargs)

    def refuse(num_tokens: int) -> None:
        raise RequestRefused("too long", kind=RefusalKind.CONTEXT_LENGTH)

    monkeypatch.setattr(ChatTemplate, "render", counted)
    error = refusal(tokenizer_of("forgetful"), USER, {"role": "system", "content": "hi"}, check_length=refuse)
    assert error.kind is RefusalKind.CONTEXT_LENGTH
    assert renderings == [2]


def test_empty_text_is_not_missed(tokenizer_of: Tokenizers) -> None:
    tokenizer = tokenizer_of("forgetful")
    assert tokenizer.render_chat([USER, {"role": "assistant", "content": ""}])
