"""What each token of a vocabulary is as bytes.

A tokenizer's ids stand for byte strings, not for text: one token may hold half a character. The two spellings in use
are GPT-2's byte alphabet (every byte has a printable stand-in) and SentencePiece's (``▁`` for a space, ``<0x0A>`` for a
byte that no piece holds). Which one a vocabulary uses is told by its decoder.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Set
from typing import Any, Final

import msgspec

SPACE_MARK: Final = "▁"
_STRIPS_ALL: Final = {"type": "Replace", "pattern": {"Regex": r"\A[ \n\r\t]+"}, "content": ""}
_BYTE_PIECE: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Spelling(enum.Enum):
    """How a vocabulary writes bytes in its tokens."""

    BYTE_LEVEL = "byte_level"
    SENTENCEPIECE = "sentencepiece"
    OTHER = "other"
    """Text depends on neighbouring tokens in a way only the tokenizer's own decoder knows (WordPiece, CTC, ...)."""


class LeadingSpace(enum.Enum):
    """What a whole decode does with the space a SentencePiece vocabulary puts before the first word."""

    KEEP = "keep"
    STRIP_ONE = "strip_one"
    """One space at the start of the text goes."""
    STRIP_FIRST_TOKEN = "strip_first_token"
    """The first token's spaces go."""
    STRIP_ALL = "strip_all"
    """All white space of ASCII at the start of the text goes."""


class TokenTable(msgspec.Struct, frozen=True, kw_only=True):
    """The vocabulary as bytes. All lists are indexed by token id; ids the tokenizer does not know hold ``b""``."""

    spelling: Spelling
    leading_space: LeadingSpace
    pieces: list[bytes]
    """Real bytes of each token."""
    plain_pieces: list[bytes]
    """The same with special tokens empty."""
    special_ids: frozenset[int]
    known_ids: frozenset[int] | None
    """Ids the tokenizer has, where there are gaps; ``None``: all of them."""

    def with_text(self, token_ids: Set[int]) -> TokenTable:
        """The same with these special tokens as text."""
        plain_pieces = list(self.plain_pieces)
        for token_id in token_ids:
            plain_pieces[token_id] = self.pieces[token_id]
        return msgspec.structs.replace(self, plain_pieces=plain_pieces, special_ids=self.special_ids - token_ids)


def byte_alphabet() -> dict[str, int]:
    """GPT-2's stand-ins: printable Latin-1 characters are themselves, all other bytes follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


def build_token_table(spec: dict[str, Any], vocab: dict[str, int]) -> TokenTable:
    """``spec`` is the parsed ``tokenizer.json``; ``vocab`` every token with its id, added ones included."""
    spelling, leading_space = _read_decoder(spec.get("decoder"))
    added: dict[str, dict[str, Any]] = {token["content"]: token for token in spec["added_tokens"]}
    pieces = [b""] * (max(vocab.values(), default=-1) + 1)
    special_ids = frozenset(vocab[text] for text, token in added.items() if token["special"] and text in vocab)
    to_bytes = _byte_level_piece(byte_alphabet()) if spelling is Spelling.BYTE_LEVEL else _sentencepiece_piece
    for token, token_id in vocab.items():
        is_text = token in added or spelling is Spelling.OTHER
        pieces[token_id] = token.encode("utf-8", "replace") if is_text else to_bytes(token)
    plain_pieces = list(pieces)
    for token_id in special_ids:
        plain_pieces[token_id] = b""
    return TokenTable(
        spelling=spelling,
        leading_space=leading_space,
        pieces=pieces,
        plain_pieces=plain_pieces,
        special_ids=special_ids,
        known_ids=None if len(set(vocab.values())) == len(pieces) else frozenset(vocab.values()),
    )


def _byte_level_piece(alphabet: dict[str, int]) -> Any:
    to_latin1 = {ord(stand_in): byte for stand_in, byte in alphabet.items()}

    def piece(token: str) -> bytes:
        if all(character in alphabet for character in token):
            return token.translate(to_latin1).encode("latin-1")
        return token.encode("utf-8", "replace")  # not in the alphabet: stands for itself

    return piece


def _sentencepiece_piece(token: str) -> bytes:
    byte = _BYTE_PIECE.fullmatch(token)
    if byte:
        return bytes([int(byte[1], 16)])
    return token.replace(SPACE_MARK, " ").encode("utf-8", "replace")


def _read_decoder(decoder: dict[str, Any] | None) -> tuple[Spelling, LeadingSpace]:
    if decoder is None:
        return Spelling.OTHER, LeadingSpace.KEEP
    sequence = decoder.get("decoders", [decoder])
    steps = {step["type"]: step for step in sequence}
    if "ByteLevel" in steps:
        return Spelling.BYTE_LEVEL, LeadingSpace.KEEP
    if "Metaspace" in steps:
        never = steps["Metaspace"].get("prepend_scheme") == "never"
        return Spelling.SENTENCEPIECE, LeadingSpace.KEEP if never else LeadingSpace.STRIP_FIRST_TOKEN
    if _replaces_space_mark(sequence[0]) and set(steps) <= {"Replace", "ByteFallback", "Fuse", "Strip"}:
        if sequence[-1] == _STRIPS_ALL:
            return Spelling.SENTENCEPIECE, LeadingSpace.STRIP_ALL
        if sum(step["type"] == "Replace" for step in sequence) == 1:
            strips = steps.get("Strip", {}).get("start", 0) > 0
            return Spelling.SENTENCEPIECE, LeadingSpace.STRIP_ONE if strips else LeadingSpace.KEEP
    return Spelling.OTHER, LeadingSpace.KEEP


def _replaces_space_mark(step: dict[str, Any]) -> bool:
    replaced = (step.get("type"), step.get("pattern"), step.get("content"))
    return replaced == ("Replace", {"String": SPACE_MARK}, " ")
