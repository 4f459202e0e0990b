"""Token ids to text, piece by piece: the pieces joined are the text of all ids decoded at once.

A token may end in the middle of a character; its bytes wait for the rest. Bytes that never become a character turn into
U+FFFD, at the end of the text too. One token costs a table look-up and, unless it is plain text by itself, one decoding
of its bytes.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from tokenizers.decoders import DecodeStream

from mindserve.chat.vocabulary import LeadingSpace, Spelling, TokenTable

_UTF8: Final = codecs.getincrementaldecoder("utf-8")


class TokenSource(Protocol):
    """What a detokenizer needs of a tokenizer."""

    @property
    def table(self) -> TokenTable: ...
    @property
    def backend(self) -> Any:
        """The ``tokenizers.Tokenizer``."""


class Detokenizer:
    """The text of one sequence. No input or output of its own."""

    def __init__(self, tokenizer: TokenSource, *, skip_special_tokens: bool = True) -> None:
        if tokenizer.table.spelling is Spelling.OTHER:
            stream: _ByteStream | _WindowStream = _WindowStream(tokenizer.backend, skip=skip_special_tokens)
        else:
            stream = _ByteStream(tokenizer.table, skip=skip_special_tokens)
        self.feed: Callable[[Sequence[int]], str] = stream.feed
        """The text that the ids add. Ids the tokenizer does not know add nothing."""
        self.finish: Callable[[], str] = stream.finish
        """What was still waiting, as U+FFFD. Nothing may be fed afterwards."""


class _ByteStream:
    """For vocabularies whose tokens are bytes, whatever stands beside them."""

    __slots__ = ("_at_start", "_decoder", "_leading_space", "_pieces", "_skipped", "_table", "_waiting")

    def __init__(self, table: TokenTable, *, skip: bool) -> None:
        self._table = table
        self._pieces = table.plain_pieces if skip else table.pieces
        self._skipped = table.special_ids if skip else frozenset()
        self._leading_space = table.leading_space
        self._at_start = table.leading_space is not LeadingSpace.KEEP
        self._decoder = _UTF8("replace")
        self._waiting = False

    def feed(self, token_ids: Sequence[int]) -> str:
        pieces = self._pieces
        size = len(pieces)
        data = b"".join([pieces[token_id] for token_id in token_ids if 0 <= token_id < size])
        if self._at_start:
            data = self._strip_leading_space(token_ids, data)
        if not self._waiting and data.isascii():
            return data.decode("ascii")
        text = self._decoder.decode(data)
        self._waiting = bool(self._decoder.getstate()[0])
        return text

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)

    def _strip_leading_space(self, token_ids: Sequence[int], data: bytes) -> bytes:
        if self._leading_space is LeadingSpace.STRIP_ONE:
            self._at_start = not data
            return data.removeprefix(b" ")
        if self._leading_space is LeadingSpace.STRIP_ALL:
            data = data.lstrip(b" \n\r\t")
            self._at_start = not data
            return data
        known = self._table.known_ids
        for token_id in token_ids:
            if token_id in self._skipped or not 0 <= token_id < len(self._pieces):
                continue
            if known is None or token_id in known:
                self._at_start = False
                piece = self._pieces[token_id]
                return piece.replace(b" ", b"") + data[len(piece) :]
        return data


class _WindowStream:
    """For the others: the tokenizers library decodes a sliding window."""

    def __init__(self, backend: Any, *, skip: bool) -> None:
        self._backend = backend
        self._skip = skip
        self._stream = DecodeStream(skip_special_tokens=skip)
        self._token_ids: list[int] = []
        self._num_given = 0

    def feed(self, token_ids: Sequence[int]) -> str:
        self._token_ids += token_ids
        text = "".join(self._stream.step(self._backend, token_id) or "" for token_id in token_ids)
        self._num_given += len(text)
        return text

    def finish(self) -> str:
        whole: str = self._backend.decode(self._token_ids, skip_special_tokens=self._skip)
        return whole[self._num_given :]
