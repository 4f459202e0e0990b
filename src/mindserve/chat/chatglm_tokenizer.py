"""The tokenizer of ChatGLM3 folders: a SentencePiece vocabulary, and code that knows the special tokens behind it.

The code is not run. What it does is known: the special tokens are numbered behind the vocabulary in a fixed order, and
text is cut by SentencePiece alone. ``sop`` and ``eop`` are called ``<sop>`` and ``<eop>`` here: the vocabulary may have
ordinary pieces of the short names.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from tokenizers import AddedToken, Regex, decoders

from mindserve.errors import StartupError

_CLASS: Final = "ChatGLMTokenizer"
_VOCABULARY: Final = "tokenizer.model"
_SPECIAL: Final = (
    *("[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>"),
    *("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
)
_SPELLED_OTHERWISE: Final = {"[gMASK]sop": "[gMASK]<sop>"}
_CONTROL: Final = 3
"""What SentencePiece calls the kind of pieces that no text gives."""


def is_chatglm(folder: Path) -> bool:
    """Whether the folder has the vocabulary of ChatGLM3, and names the class of its tokenizer."""
    if not (folder / _VOCABULARY).is_file() or (folder / "tokenizer.json").is_file():
        return False
    return _tokenizer_config(folder).get("tokenizer_class") == _CLASS


def load_chatglm_tokenizer(folder: Path) -> Any:
    """A ``PreTrainedTokenizerFast``. Raises ``StartupError`` when the vocabulary cannot be used."""
    # Takes a second: beside the engine's start, not before it.
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import SpmConverter

    proto = _vocabulary(folder / _VOCABULARY)
    pieces = [piece.piece for piece in proto.pieces]
    twice = next((piece for piece in _SPECIAL if piece in pieces), None)
    if twice is not None:
        raise StartupError(f"{folder / _VOCABULARY}: the piece {twice!r} has the name of a special token")
    backend = SpmConverter.build_tokenizer_from_spm_proto(proto, {piece: place for place, piece in enumerate(pieces)})
    control = [piece.piece for piece in proto.pieces if piece.type == _CONTROL]
    backend.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in (*control, *_SPECIAL)])
    # The model begins every answer with an empty line and a space.
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Replace(Regex(r"\A[ \n\r\t]+"), ""),
        ]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        chat_template=_chat_template(folder),
        clean_up_tokenization_spaces=False,
        unk_token=proto.trainer_spec.unk_piece,
    )


def chatglm_spelling(template: str) -> str:
    """A template written for the model's own tokenizer, with the names that the tokens have here."""
    for theirs, ours in _SPELLED_OTHERWISE.items():
        template = template.replace(theirs, ours)
    return template


def _vocabulary(path: Path) -> Any:
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]  # made at run time
    try:
        proto.ParseFromString(path.read_bytes())
        is_bpe = bool(proto.pieces) and proto.trainer_spec.model_type == proto.trainer_spec.BPE
    except Exception as error:  # protobuf has an error of its own for each of its implementations
        raise StartupError(f"{path}: not a SentencePiece model") from error
    if not is_bpe:
        raise StartupError(f"{path}: not a SentencePiece vocabulary of byte pairs")
    return proto


def _chat_template(folder: Path) -> str:
    """The folder's own where it can show tools; the published one cannot."""
    own = _tokenizer_config(folder).get("chat_template")
    if isinstance(own, str) and "tools" in own:
        return chatglm_spelling(own)
    return files("mindserve.chat").joinpath("templates", "chatglm3.jinja").read_text("utf-8")


def _tokenizer_config(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer_config.json"
    try:
        written = json.loads(path.read_bytes()) if path.is_file() else {}
    except ValueError as error:
        raise StartupError(f"{path}: not valid JSON ({error})") from error
    return written if isinstance(written, dict) else {}
