"""The tokenizer inside a GGUF file.

A GGUF names the way text is cut before merging (``tokenizer.ggml.pre``) instead of carrying it. transformers does not
know all of these names and silently falls back to GPT-2's cut, which gives wrong tokens ("a  1" for SmolLM); and
reading one through it imports torch. So the byte-level vocabularies, which nearly all files hold, are built here with
the tokenizers library, for the names listed below. The rest goes through transformers; a name nobody knows is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from mindserve.chat.gguf_metadata import read_gguf_metadata
from mindserve.errors import StartupError

_GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2: Final = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

_CUTS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("gpt-2", "gpt2", "mpt", "olmo", "phi-2", "jais", "exaone4"), (_GPT2,)),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"), (r"\p{N}", _GPT2)
    ),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "lfm2"), (_LLAMA3,)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), (_QWEN2,)),
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
}
"""Each expression cuts what the ones before it left. After llama.cpp's table of the same names."""
_COMPOSES: Final = frozenset({"qwen2", "deepseek-r1-qwen"})
"""Trained on text in Unicode's composed form (NFC)."""
_WHOLE_WORDS: Final = frozenset({"llama-bpe", "llama3", "llama-v3"})
"""A cut piece that is itself a token is not built by merging."""
_CONTROL: Final = 3
_USER_DEFINED: Final = 4
_NAMED: Final = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}


def load_gguf_tokenizer(path: Path) -> Any:
    """A ``PreTrainedTokenizerFast``. Raises ``StartupError`` when the file has none or an unknown one."""
    metadata = _read_metadata(path)
    kind = metadata.get("tokenizer.ggml.model")
    pre = metadata.get("tokenizer.ggml.pre", "default")
    if kind is None:
        raise StartupError(f"{path}: the file has no tokenizer (key tokenizer.ggml.model)")
    if kind == "gpt2" and pre in _CUTS:
        return _byte_level(metadata, pre)
    return _through_transformers(path, kind=kind, pre=pre)


def _read_metadata(path: Path) -> dict[str, Any]:
    try:
        return read_gguf_metadata(path)
    except (OSError, ValueError) as error:
        raise StartupError(f"{path}: not a readable GGUF file ({error})") from error


def _byte_level(metadata: dict[str, Any], pre: str) -> Any:
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=pre in _WHOLE_WORDS))
    if pre in _COMPOSES:
        backend.normalizer = normalizers.NFC()
    cuts = [pre_tokenizers.Split(Regex(cut), behavior="isolated") for cut in _CUTS[pre]]
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    backend.decoder = decoders.ByteLevel()
    kinds = metadata.get("tokenizer.ggml.token_type", [])
    backend.add_special_tokens(_added(tokens, kinds, _CONTROL))
    backend.add_tokens(_added(tokens, kinds, _USER_DEFINED))
    # Takes a second: beside the engine's start, not before it.
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        chat_template=_chat_template(metadata),
        clean_up_tokenization_spaces=False,
        **_named_tokens(metadata, tokens),
    )


def _added(tokens: list[str], kinds: list[int], kind: int) -> list[AddedToken]:
    return [
        AddedToken(token, normalized=False, special=kind == _CONTROL)
        for token, token_kind in zip(tokens, kinds, strict=False)
        if token_kind == kind
    ]


def _named_tokens(metadata: dict[str, Any], tokens: list[str]) -> dict[str, str]:
    ids = {name: metadata.get(f"tokenizer.ggml.{key}_token_id") for name, key in _NAMED.items()}
    return {name: tokens[token_id] for name, token_id in ids.items() if token_id is not None}


def _chat_template(metadata: dict[str, Any]) -> str | dict[str, str] | None:
    default: str | None = metadata.get("tokenizer.chat_template")
    named = {
        name: metadata[f"tokenizer.chat_template.{name}"]
        for name in metadata.get("tokenizer.chat_templates", ())
        if f"tokenizer.chat_template.{name}" in metadata
    }
    return {"default": default, **named} if named and default is not None else default


def _through_transformers(path: Path, *, kind: str, pre: str) -> Any:
    # Imports torch: only for vocabularies that are not byte-level, and the rarer cuts.
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    if kind == "gpt2" and pre not in GGUF_PRE_TOKENIZER_SPLITS:
        raise StartupError(
            f"{path}: unknown pre-tokenizer {pre!r} (key tokenizer.ggml.pre); serve a folder with a tokenizer.json"
        )
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast.from_pretrained(str(path.parent), gguf_file=path.name)
