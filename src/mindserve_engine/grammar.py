"""Grammars that bind what a model generates: llguidance's, over the bytes of the model's tokens.

A grammar is Lark text as llguidance reads it (``%json {...}`` holds a JSON Schema). Torch-free: the client side
compiles a grammar to refuse what cannot be used, the engine's process compiles it again to follow it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import OrderedDict
from typing import Final

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from tokenizers import Tokenizer

from mindserve_engine.interface import RequestInvalid
from mindserve_engine.types import Vocabulary

_MAX_KEPT: Final = 64
"""Compiled grammars that are kept for their next use."""
_MAX_REASON: Final = 300
_LIMITS: Final = LLParserLimits(
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=200_000,
    max_lexer_states=50_000,
    max_grammar_size=30_000,
    max_items_in_row=10_000,
    verbose_errors=False,
)
"""What one grammar may cost: an object of 500 properties takes a tenth of a second to compile, and the time grows with
the square of that number."""


class GrammarInvalid(Exception):
    """The grammar is malformed, asks for what cannot be enforced, costs too much, or nothing fits it."""


class GrammarCompiler:
    """Thread-safe. Compiling gives the interpreter lock away."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._tokenizer: LLTokenizer | None = None
        self._kept: OrderedDict[str, LLMatcher] = OrderedDict()
        self._lock = threading.Lock()
        """Of what is kept; never held for long."""
        self._preparing = threading.Lock()

    def prepare(self) -> None:
        """Make what all grammars need; without it the first one takes some tenths of a second longer."""
        with self._preparing:
            if self._tokenizer is None:
                tokens = TokenizerWrapper(_Tokens(self._vocabulary))
                self._tokenizer = LLTokenizer(tokens, eos_token=list(self._vocabulary.eos_token_ids))

    def compile(self, grammar: str) -> LLMatcher:
        """A matcher at the grammar's start, the caller's own. Raises ``GrammarInvalid``."""
        kept = self.kept(grammar)
        if kept is not None:
            return kept
        self.prepare()
        matcher = self._compile(grammar)
        with self._lock:
            self._kept[grammar] = matcher
            while len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        return matcher.deep_copy()

    def kept(self, grammar: str) -> LLMatcher | None:
        """As ``compile``, of a grammar that need not be compiled any more."""
        with self._lock:
            matcher = self._kept.get(grammar)
            if matcher is None:
                return None
            self._kept.move_to_end(grammar)
        return matcher.deep_copy()

    def _compile(self, grammar: str) -> LLMatcher:
        assert self._tokenizer is not None
        matcher = LLMatcher(self._tokenizer, LLMatcher.grammar_from_lark(grammar), log_level=0, limits=_LIMITS)
        if not matcher.is_error():
            start = matcher.deep_copy()
            start.compute_bitmask()  # finds out that nothing can begin it, and that its first step is too costly
            if not start.is_error() and (not start.is_stopped() or start.is_accepting()):
                return matcher
            matcher = start
        raise GrammarInvalid(_reason(matcher))


class _Tokens:
    """The vocabulary in the form that ``TokenizerWrapper`` asks for."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.tokens = vocabulary.token_bytes
        self.special_token_ids = vocabulary.special_token_ids
        self.eos_token_id = vocabulary.eos_token_ids[0]
        self.bos_token_id = None
        self._tokenizer = Tokenizer.from_str(vocabulary.tokenizer_json) if vocabulary.tokenizer_json else None
        if self._tokenizer is not None:
            self._tokenizer.encode_special_tokens = True  # as text: a grammar cannot forge a control token
        special = set(vocabulary.special_token_ids)
        self._ids = {token: i for i, token in enumerate(self.tokens) if token and i not in special}
        self._longest = max(map(len, self._ids), default=1)

    def __call__(self, text: bytes) -> list[int]:
        """Tokens of text that a grammar dictates: their bytes are exactly ``text``."""
        if self._tokenizer is not None:
            with contextlib.suppress(UnicodeDecodeError):
                ids: list[int] = self._tokenizer.encode(text.decode(), add_special_tokens=False).ids
                if b"".join(self.tokens[i] for i in ids) == text:  # not so where a space is put before every text
                    return ids
        return self._cut(text)

    def _cut(self, text: bytes) -> list[int]:
        ids: list[int] = []
        start = 0
        while start < len(text):
            ends = range(min(len(text), start + self._longest), start, -1)
            end = next((end for end in ends if text[start:end] in self._ids), None)
            if end is None:
                break  # what remains is left to the mask
            ids.append(self._ids[text[start:end]])
            start = end
        return ids


def _reason(matcher: LLMatcher) -> str:
    lines = [line.strip() for line in matcher.get_error().splitlines() if line.strip()]
    if not lines or lines[0].startswith("NoExtension"):
        return "nothing fits it"
    return lines[0].removeprefix("Parser Error: ").rpartition("failed to compile JSON schema: ")[2][:_MAX_REASON]


async def check_grammar(compiler: GrammarCompiler | None, grammar: str) -> None:
    """Raises ``RequestInvalid``. What is not kept is compiled in a thread: that may take long."""
    if compiler is None:
        raise RequestInvalid(field="grammar", reason="the engine was not told the vocabulary")
    if compiler.kept(grammar) is not None:
        return
    try:
        await asyncio.to_thread(compiler.compile, grammar)
    except GrammarInvalid as error:
        raise RequestInvalid(field="grammar", reason=str(error)) from error
