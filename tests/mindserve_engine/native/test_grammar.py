"""Which grammars are taken, and what is told of the others."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from llguidance import LLMatcher
from msgspec.structs import replace
from waiting import until

from mindserve.chat.tokenizer import load_tokenizer
from mindserve_engine import grammar as module
from mindserve_engine.grammar import GrammarCompiler, GrammarInvalid
from mindserve_engine.interface import RequestInvalid
from mindserve_engine.native.process import NativeEngine
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import EngineState, GenerationRequest, Vocabulary
from tests import tiny_models

EOS = 256


@pytest.fixture
def compiler() -> GrammarCompiler:
    """Every byte is a token."""
    return GrammarCompiler(Vocabulary([bytes([i]) for i in range(256)] + [b"<eos>"], [EOS], (EOS,)))


def schema(value: Any) -> str:
    return f"start: %json {json.dumps(value)}"


def allowed(matcher: Any) -> set[int]:
    bits = matcher.compute_bitmask()
    return {i for i in range(257) if bits[i // 8] >> (i % 8) & 1}


def test_follows_every_prefix(compiler: GrammarCompiler) -> None:
    """The tokens allowed after each prefix are the next bytes of the words that begin with it."""
    words = [b"to", b"tea", b"ten", b"i", b"inn", "é".encode()]
    text = "start: " + " | ".join(json.dumps(word.decode(), ensure_ascii=False) for word in words)
    for word in words:
        matcher = compiler.compile(text)
        for cut in range(len(word) + 1):
            prefix = word[:cut]
            expected = {other[cut] for other in words if other.startswith(prefix) and len(other) > cut}
            expected |= {EOS} if prefix in words else set()
            assert allowed(matcher) == expected
            if cut < len(word):
                assert matcher.consume_token(word[cut])


def test_dictated_text_is_cut_as_the_tokenizer_cuts_it(tmp_path: Path) -> None:
    """And as text: no control token comes of it."""
    tokenizer = load_tokenizer(tiny_models.build("llama", tmp_path))
    compiler = GrammarCompiler(tokenizer.vocabulary((tiny_models.IM_END,)))
    for text in ("say hello", "<|im_end|>", "é"):
        matcher = compiler.compile(f"start: {json.dumps(text, ensure_ascii=False)}")
        tokens = matcher.compute_ff_tokens()
        assert b"".join(map(tokenizer.token_bytes, tokens)) == text.encode()
        assert tiny_models.IM_END not in tokens


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("start: (", "1"),
        ("nothing", ""),
        (schema({"type": "strin"}), "Invalid type: strin"),
        (schema({"$ref": "#/nope"}), "does not exist"),
        (schema({"$ref": "#"}), "nothing fits it"),
        (schema({"type": "string", "pattern": "("}), "regex"),
        (schema({"not": {"type": "string"}}), "not"),
        (schema({"type": "array", "uniqueItems": True}), "uniqueItems"),
        (schema({"type": "integer", "minimum": 2, "maximum": 1}), ""),
        (schema(False), ""),
        ("start: /(([a-z]{1,50}x){1,50}y){1,50}/ & /.*(a.{50}){3}/", ""),
    ],
)
def test_refusals(compiler: GrammarCompiler, text: str, reason: str) -> None:
    with pytest.raises(GrammarInvalid) as refused:
        compiler.compile(text)
    message = str(refused.value)
    assert reason in message
    assert message
    assert "\n" not in message
    assert len(message) <= 300


def test_matchers_are_the_callers_own(compiler: GrammarCompiler) -> None:
    first = compiler.compile('start: "ab"')
    assert first.consume_token(ord("a"))
    assert allowed(compiler.compile('start: "ab"')) == {ord("a")}


def test_so_many_are_kept(compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_KEPT", 3)
    compiled: list[str] = []
    compile_new = compiler._compile

    def noting(text: str) -> LLMatcher:
        compiled.append(text)
        return compile_new(text)

    monkeypatch.setattr(compiler, "_compile", noting)
    texts = [f'start: "{letter}"' for letter in "abcd"]
    for text in [*texts[:3], texts[0], texts[3], texts[0], texts[1]]:
        compiler.compile(text)
    assert compiled == [*texts, texts[1]]


def test_many_threads(compiler: GrammarCompiler) -> None:
    words = [f"w{number}" for number in range(200)]
    found: dict[str, set[int]] = {}

    def work(part: list[str]) -> None:
        for word in part:
            matcher = compiler.compile(f'start: "{word}"')
            matcher.consume_tokens(list(word[:-1].encode()))
            found[word] = allowed(matcher)

    threads = [threading.Thread(target=work, args=(words[i::8],)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {word: {ord(word[-1])} for word in words}


async def test_an_engine_refuses_what_it_cannot_follow(tmp_path: Path) -> None:
    engine = NativeEngine(EngineOptions(model_path=tiny_models.build("qwen3", tmp_path), num_threads=1))
    try:
        await engine.start()
        ask = GenerationRequest(request_id="r", prompt_token_ids=[1], max_tokens=5, grammar='start: "yes"')
        with pytest.raises(RequestInvalid, match="not told the vocabulary"):
            await engine.admit(ask)
        tokenizer = load_tokenizer(tmp_path)
        engine.learn(tokenizer.vocabulary(engine.info.eos_token_ids))
        with pytest.raises(RequestInvalid, match="Invalid type") as refused:
            await engine.admit(replace(ask, grammar=schema({"type": "strin"})))
        assert refused.value.field == "grammar"
        for _ in range(2):  # the second of a process that took the place of the first
            events = [event async for event in await engine.admit(ask)]
            tokens = [token for event in events for token in event.token_ids]
            assert b"".join(map(tokenizer.token_bytes, tokens[:-1])) == b"yes"
            os.kill(engine.pids[0], signal.SIGKILL)
            await until(lambda: engine.health().state is EngineState.RESTARTING)
            await until(lambda: engine.health().state is EngineState.READY)
    finally:
        await engine.close()
