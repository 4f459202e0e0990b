"""Tokenizers and templates of the kinds in use, small enough to be made here, and the default model's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from mindserve.chat.tokenizer import ChatTokenizer, load_tokenizer
from tests.default_model import default_model_file

settings.register_profile("no_deadline", deadline=None)  # machines differ, and tests prove no timings
settings.load_profile("no_deadline")

CORPUS = [
    "You are a helpful assistant. What is the weather in Paris? It is 21 degrees and sunny today.",
    "Привет, как дела? 你好,世界。 こんにちは 🙂🙂 naïve café — don't stop, it's we'll they've 123 4567",
    "def f(x):\n    return {'name': x, \"role\": 'user'}\n\n\tend system user assistant tool im_start im_end <s> </s>",
] * 4

CHATML_TOOLS = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}{{- messages[0]['content'] + '\\n\\n' }}{%- endif %}
    {{- '# Tools\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '\\n</tools><|im_end|>\\n' }}
{%- elif messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant' }}
        {%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}
        {%- if content %}{{- '\\n' + content }}{%- endif %}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson }}{{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content | trim + '\\n</tool_response><|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
"""

HEADERS = """\
{{- bos_token }}
{%- for message in messages %}
    {%- set turn = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim %}
    {{- turn + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
"""

INSTRUCT = """\
{{ bos_token }}
{%- for message in messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Roles must alternate user/assistant/user/assistant/... after ' + bos_token) }}
    {%- endif %}
    {%- if message['role'] == 'user' %}{{- '[INST] ' + message['content'] + ' [/INST]' }}
    {%- elif message['role'] == 'assistant' %}{{- message['content'] + eos_token }}
    {%- else %}{{- raise_exception('Only user and assistant roles are supported!') }}{%- endif %}
{%- endfor %}
"""

PIECED = """\
{%- for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor -%}
{%- if add_generation_prompt %}<|{{ 'assistant' }}|>{% endif -%}
"""

FORGETFUL = """\
{%- for message in messages %}
    {%- if message.role == 'user' %}{{ '<|user|>' + message.content }}
    {%- elif message.role == 'assistant' %}{{ '<|assistant|>' + message.content }}{%- endif %}
{%- endfor %}
"""


def byte_level(*special: str, plain: tuple[str, ...] = (), ignore_merges: bool = False) -> Tokenizer:
    """A byte-level BPE vocabulary with added tokens."""
    backend = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(CORPUS, trainer)
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    backend.add_tokens([AddedToken(token, special=False, normalized=False) for token in plain])
    return backend


def sentencepiece(*special: str) -> Tokenizer:
    """A SentencePiece-like BPE vocabulary as Llama 2 has it: specials inside, byte pieces, a space before the text."""
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    named = ["<unk>", "<s>", "</s>"]
    backend = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    latin = [text for text in CORPUS if text.isascii()]
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=named + bytes_, show_progress=False)
    backend.train_from_iterator(latin, trainer)
    # Plain characters of "</s>" do merge into it, as they do in vocabularies whose merges come from the piece list.
    spec = _with_merges_to(backend, "</s>")
    backend = Tokenizer.from_str(spec)
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in (*named, *special)])
    return backend


def _with_merges_to(backend: Tokenizer, token: str) -> str:
    spec: dict[str, Any] = json.loads(backend.to_str())
    spec["added_tokens"] = []
    vocab, merges = spec["model"]["vocab"], spec["model"]["merges"]
    for end in range(2, len(token) + 1):
        for piece in (token[: end - 1], token[end - 1], token[:end]):
            vocab.setdefault(piece, len(vocab))
        merges.append([token[: end - 1], token[end - 1]])
    return json.dumps(spec)


def unigram() -> Tokenizer:
    """A Unigram vocabulary with the special tokens among its pieces, as T5 has it."""
    backend = Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=400, special_tokens=["<unk>", "</s>", "<|user|>"], unk_token="<unk>", show_progress=False
    )
    backend.train_from_iterator(CORPUS, trainer)
    return backend


def wordpiece() -> Tokenizer:
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    special = ["[UNK]", "<|user|>", "<|assistant|>"]
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=special, show_progress=False)
    backend.train_from_iterator(CORPUS, trainer)
    return backend


def save(backend: Tokenizer, template: str | None, folder: Path, **named: str) -> Path:
    """A model folder with nothing but a tokenizer in it."""
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, chat_template=template, **named)
    fast.save_pretrained(str(folder))
    return folder


MODELS: dict[str, Callable[[Path], Path]] = {
    "chatml": lambda folder: save(
        byte_level("<|im_start|>", "<|im_end|>", plain=("<think>", "</think>", "<tool_call>", "</tool_call>")),
        CHATML_TOOLS,
        folder,
        eos_token="<|im_end|>",
    ),
    "headers": lambda folder: save(
        byte_level("<|begin|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", ignore_merges=True),
        HEADERS,
        folder,
        bos_token="<|begin|>",
        eos_token="<|eot_id|>",
    ),
    "instruct": lambda folder: save(
        sentencepiece("[INST]", "[/INST]"), INSTRUCT, folder, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    ),
    "pieced": lambda folder: save(
        byte_level("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>"), PIECED, folder
    ),
    "forgetful": lambda folder: save(unigram(), FORGETFUL, folder, eos_token="</s>", unk_token="<unk>"),
    "wordpiece": lambda folder: save(wordpiece(), FORGETFUL, folder, unk_token="[UNK]"),
}


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of one of ``MODELS``, made once."""
    made: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in made:
            made[name] = MODELS[name](tmp_path_factory.mktemp(name))
        return made[name]

    return folder


@pytest.fixture(scope="session")
def tokenizer_of(model_folder: Callable[[str], Path]) -> Callable[[str], ChatTokenizer]:
    """The loaded tokenizer of one of ``MODELS``, or of the default model under the name ``default``."""
    loaded: dict[str, ChatTokenizer] = {}

    def tokenizer(name: str) -> ChatTokenizer:
        if name not in loaded:
            loaded[name] = load_tokenizer(default_model_file() if name == "default" else model_folder(name))
        return loaded[name]

    return tokenizer


@pytest.fixture(scope="session")
def reference_ids(model_folder: Callable[[str], Path]) -> Callable[..., list[int]]:
    """What transformers makes of a conversation: name of the model, messages, keyword arguments."""
    loaded: dict[str, Any] = {}

    def ids(name: str, messages: list[dict[str, Any]], **kwargs: Any) -> list[int]:
        if name not in loaded:
            loaded[name] = PreTrainedTokenizerFast.from_pretrained(str(model_folder(name)))
        made: list[int] = loaded[name].apply_chat_template(
            messages, add_generation_prompt=True, return_dict=False, **kwargs
        )
        return made

    return ids
