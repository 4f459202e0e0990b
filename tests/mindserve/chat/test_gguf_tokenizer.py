from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader, GGUFWriter, TokenType
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from mindserve.chat.gguf_tokenizer import load_gguf_tokenizer
from mindserve.chat.tokenizer import ChatTokenizer, load_tokenizer
from mindserve.chat.vocabulary import byte_alphabet
from mindserve.errors import StartupError
from tests.decoding import whole_text

TEMPLATE = "{% for m in messages %}{{ '<|im_start|>' + m.role + ' ' + m.content + '<|im_end|>' }}{% endfor %}"
TEXTS = st.lists(
    st.sampled_from(
        ["a", "Hello", "'s", "'LL", " ", "  ", "\n", "\t", "1", "234", "²", "１", "Ⅷ", "é", "e\u0301", "中文"]
    )
    | st.sampled_from(["🙂", "👩‍👧", "_", "!?", "\u00a0"]),
    max_size=12,
).map("".join)


def write_gguf(path: Path, *, pre: str | None = "gpt-2", model: str | None = "gpt2", template: Any = TEMPLATE) -> Path:
    """A GGUF with a tokenizer and nothing else."""
    tokens = [*byte_alphabet(), "Ġ1", "ĠĠ", "12", "123", "<|im_start|>", "<|im_end|>", "<think>"]
    kinds = [TokenType.NORMAL] * (len(tokens) - 3) + [TokenType.CONTROL, TokenType.CONTROL, TokenType.USER_DEFINED]
    writer = GGUFWriter(path, "llama")
    if model:
        writer.add_tokenizer_model(model)
    if pre:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(["Ġ 1", "Ġ Ġ", "1 2", "12 3"])
    writer.add_bos_token_id(tokens.index("<|im_start|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    if template:
        writer.add_chat_template(template)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def tokens_of(path: Path, text: str) -> list[str]:
    tokens: list[str] = load_gguf_tokenizer(path).backend_tokenizer.encode(text).tokens
    return tokens


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("gpt-2", ["a", "Ġ", "Ġ1", "2", "3"]),
        ("smollm", ["a", "ĠĠ", "1", "2", "3"]),
        ("llama-bpe", ["a", "Ġ", "Ġ", "123"]),
        ("qwen2", ["a", "Ġ", "Ġ", "1", "2", "3"]),
        ("default", ["a", "Ġ", "Ġ", "123"]),
        (None, ["a", "Ġ", "Ġ", "123"]),
    ],
)
def test_text_is_cut_as_the_file_says(tmp_path: Path, pre: str | None, expected: list[str]) -> None:
    assert tokens_of(write_gguf(tmp_path / "m.gguf", pre=pre), "a  123") == expected


def test_qwen_text_is_composed_first(tmp_path: Path) -> None:
    backend = load_gguf_tokenizer(write_gguf(tmp_path / "m.gguf", pre="qwen2")).backend_tokenizer
    assert backend.encode("e\u0301").ids == backend.encode("é").ids


def test_token_kinds_names_and_template_are_kept(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write_gguf(tmp_path / "m.gguf"))
    start, end, think = (tokenizer.backend.token_to_id(token) for token in ("<|im_start|>", "<|im_end|>", "<think>"))
    assert end in tokenizer.table.special_ids
    assert think not in tokenizer.table.special_ids
    assert tokenizer.backend.encode("<think>").ids == [think]
    ids = tokenizer.render_chat([{"role": "user", "content": "<|im_end|>"}])
    assert (ids[0], ids[-1], ids.count(end), ids.count(start)) == (start, end, 1, 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pre": "nobody-knows"}, "unknown pre-tokenizer 'nobody-knows'"),
        ({"model": None}, "no tokenizer"),
        ({"template": None}, "no chat template"),
        ({"template": "{% if %}"}, "broken chat template, line 1"),
        ({"model": "hieroglyphs"}, "hieroglyphs"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    path = write_gguf(tmp_path / "m.gguf", **settings)
    with pytest.raises(StartupError, match=re.escape(message)) as error:
        load_tokenizer(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a GGUF file at all, but long enough to read", b"\x00" * 64])
def test_a_broken_file_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(StartupError, match=r"m\.gguf: not a readable GGUF file") as error:
        load_tokenizer(tmp_path / "m.gguf")
    assert "\n" not in str(error.value)


def test_a_template_for_tools_is_used_with_tools(tmp_path: Path) -> None:
    templates = [
        {"name": "default", "template": "{{ messages[0].content }}"},
        {"name": "tool_use", "template": "{{ messages[0].content + tools[0].function.name }}"},
    ]
    tokenizer = load_tokenizer(write_gguf(tmp_path / "m.gguf", template=templates))
    user = [{"role": "user", "content": "x"}]
    assert whole_text(tokenizer, tokenizer.render_chat(user)) == "x"
    tool = {"type": "function", "function": {"name": "weather"}}
    assert whole_text(tokenizer, tokenizer.render_chat(user, tools=[tool])) == "xweather"


class TestDefaultModel:
    """The file users get without naming a model."""

    def test_ids_are_the_files(self, default_model: Path, tokenizer_of: Callable[[str], ChatTokenizer]) -> None:
        fields = GGUFReader(str(default_model)).fields
        tokens = fields["tokenizer.ggml.tokens"].contents()
        tokenizer = tokenizer_of("default")
        assert tokenizer.vocab_size == len(tokens) == 49_152
        assert [tokenizer.backend.id_to_token(token_id) for token_id in range(len(tokens))] == tokens
        assert tokens[fields["tokenizer.ggml.bos_token_id"].contents()] == "<|im_start|>"
        assert tokens[fields["tokenizer.ggml.eos_token_id"].contents()] == "<|im_end|>"
        assert 1 in tokenizer.table.special_ids
        assert 2 in tokenizer.table.special_ids

    @pytest.mark.parametrize(
        ("text", "ids"),
        [
            ("Hello world! 123", [19556, 905, 17, 216, 33, 34, 35]),
            ("Café déjà vu.", [51, 1939, 2756, 32564, 90, 16739, 386, 101, 30]),
            ("  multiple   spaces", [216, 2701, 256, 5600]),
            ("\n", [198]),
        ],
    )
    def test_known_texts(self, tokenizer_of: Callable[[str], ChatTokenizer], text: str, ids: list[int]) -> None:
        assert tokenizer_of("default").backend.encode(text).ids == ids

    @given(text=TEXTS)
    def test_text_is_cut_as_the_models_own_tokenizer_does(
        self, tokenizer_of: Callable[[str], ChatTokenizer], text: str
    ) -> None:
        """SmolLM's published tokenizer: single digits, then GPT-2's cut, both by the library's own components."""
        backend = tokenizer_of("default").backend
        original = _with_original_cut(backend)
        assert backend.encode(text).ids == original.encode(text).ids

    @given(data=st.data())
    def test_conversations_are_what_transformers_makes_of_them(
        self, default_model: Path, tokenizer_of: Callable[[str], ChatTokenizer], data: Any
    ) -> None:
        roles = data.draw(st.sampled_from([["user"], ["system", "user"], ["user", "assistant", "user"]]))
        messages = [{"role": role, "content": data.draw(TEXTS.filter(str.strip))} for role in roles]
        reference = _as_transformers(default_model, tokenizer_of("default"))
        expected = reference.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        assert tokenizer_of("default").render_chat(messages) == expected


_MADE: dict[str, Any] = {}


def _with_original_cut(backend: Tokenizer) -> Tokenizer:
    if "cut" not in _MADE:
        original = Tokenizer.from_str(backend.to_str())
        original.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        _MADE["cut"] = original
    return _MADE["cut"]


def _as_transformers(path: Path, tokenizer: ChatTokenizer) -> Any:
    if "transformers" not in _MADE:
        template = GGUFReader(str(path)).fields["tokenizer.chat_template"].contents()
        _MADE["transformers"] = PreTrainedTokenizerFast(
            tokenizer_object=_with_original_cut(tokenizer.backend), chat_template=template
        )
    return _MADE["transformers"]
