"""The written model folder: transformers loads it, and its ids are the engine's."""

import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from mindserve_engine.scripted.model import write_model
from mindserve_engine.scripted.script import load_script
from mindserve_engine.scripted.vocabulary import Vocabulary

SCRIPT = """
- {contains: hi, pieces: [" helpful", "é", "你好", "x", "<|im_end|>", !!binary 5L0=, !!binary oA==]}
- {default: true, pieces: [" helpful", "!"]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "script.yaml").write_text(SCRIPT, "utf-8")
    write_model(tmp_path / "script.yaml", tmp_path)
    return tmp_path


@pytest.fixture
def vocabulary(folder: Path) -> Vocabulary:
    return Vocabulary(load_script(folder / "script.yaml"))


def test_text_is_one_token_per_byte(folder: Path, vocabulary: Vocabulary) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "is  helpful é 你好 \U0001f600\n\t"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert ids == list(text.encode())
    assert tokenizer.decode(ids) == text == vocabulary.decode(ids)
    assert len(tokenizer) == len(vocabulary)


def test_pieces_are_single_tokens(folder: Path, vocabulary: Vocabulary) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for piece in (" helpful", "é", "你好"):
        assert vocabulary.id_of(piece) > 258
        assert tokenizer.decode([vocabulary.id_of(piece)]) == piece
    halves = [vocabulary.id_of(half.decode("utf-8", "surrogateescape")) for half in (b"\xe4\xbd", b"\xa0")]
    assert tokenizer.decode(halves) == "你"


def test_single_bytes_and_special_tokens_are_themselves(vocabulary: Vocabulary) -> None:
    assert vocabulary.id_of("x") == ord("x")
    assert vocabulary.id_of("<|im_end|>") == vocabulary.turn_end_id == 258


def test_chat_template_renders_turns_tools_and_calls(folder: Path, vocabulary: Vocabulary) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]},
        {"role": "tool", "content": "4"},
    ]
    tools = [{"type": "function", "function": {"name": "f"}}]
    ids = tokenizer.apply_chat_template(
        messages, tools=tools, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    assert vocabulary.decode(ids) == (
        '<|im_start|>tools\n[{"type": "function", "function": {"name": "f"}}]<|im_end|>\n'
        "<|im_start|>user\nhi<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>{"name": "f"}</tool_call><|im_end|>\n'
        "<|im_start|>tool\n4<|im_end|>\n<|im_start|>assistant\n"
    )
    assert ids.count(vocabulary.turn_end_id) == 4


def test_script_may_bring_its_own_template(tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_text("{chat_template: 'T', replies: [{default: true, pieces: [a]}]}")
    write_model(tmp_path / "script.yaml", tmp_path)
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["chat_template"] == "T"
