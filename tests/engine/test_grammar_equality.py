"""What is generated under a grammar fits it, by an independent validator's word, whatever the model would say."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest

from mindserve.chat.tokenizer import load_tokenizer
from mindserve_engine.grammar import GrammarCompiler, GrammarInvalid
from mindserve_engine.types import FinishReason, SamplingParams
from tests.engine.conftest import Pair
from tests.engine.drive import Driver, small_pool
from tests.json_schemas import random_schema

PairOf = Callable[[str], Pair]
NUM_SCHEMAS = 500
WILD = SamplingParams(temperature=2.0)


def json_grammar(schema: dict[str, Any]) -> str:
    guided = {**schema, "x-guidance": {"whitespace_flexible": False}}
    return f"start: %json {json.dumps(guided)}"


class Bench:
    """The tiny model, told its vocabulary."""

    def __init__(self, pair: Pair) -> None:
        tokenizer = load_tokenizer(pair.path)
        self.vocabulary = tokenizer.vocabulary(pair.ours.info.eos_token_ids)
        self.driver = Driver(pair.ours, max_batch_size=64)
        self.driver.loop.learn(self.vocabulary)
        self.compiler = GrammarCompiler(self.vocabulary)

    def add(self, name: str, grammar: str, sampling: SamplingParams, num_tokens: int = 400, **fields: Any) -> None:
        self.driver.add(name, [5, 6, 7], num_tokens, sampling, ignore_eos=False, grammar=grammar, **fields)

    def text(self, name: str, index: int = 0) -> str:
        events = self.driver.sequences(name)[index]
        tokens = [token for event in events for token in event.token_ids]
        if events[-1].finish_reason is FinishReason.EOS:
            tokens.pop()
        return b"".join(self.vocabulary.token_bytes[token] for token in tokens).decode("utf-8")


@pytest.fixture
def bench(tiny_pair: PairOf) -> Bench:
    return Bench(tiny_pair("qwen3"))


def test_random_schemas(bench: Bench) -> None:
    """500 of them beside one another, at a temperature at which the model raves."""
    rng = random.Random(5)
    schemas: dict[str, dict[str, Any]] = {}
    num_refused = 0
    while len(schemas) < NUM_SCHEMAS:
        schema = random_schema(rng)
        try:
            bench.compiler.compile(json_grammar(schema))
        except GrammarInvalid:
            num_refused += 1
            continue
        name = str(len(schemas))
        schemas[name] = schema
        bench.add(name, json_grammar(schema), SamplingParams(temperature=2.0, seed=len(schemas)))
    assert num_refused < NUM_SCHEMAS / 20
    bench.driver.run()
    num_cut = 0
    for name, schema in schemas.items():
        if bench.driver.sequences(name)[0][-1].finish_reason is FinishReason.LENGTH:
            num_cut += 1
            continue
        value = json.loads(bench.text(name))
        validator = jsonschema_rs.validator_for(schema, validate_formats=True)
        assert validator.is_valid(value), (schema, value)
    assert num_cut < NUM_SCHEMAS / 20  # numbers of endless digits


def test_several_sequences_of_one_request(bench: Bench) -> None:
    bench.add("n", "start: /(ab|cd){3,9}x/", WILD, num_sequences=8)
    bench.driver.run()
    texts = [bench.text("n", index) for index in range(8)]
    assert len(set(texts)) > 2
    for text in texts:
        assert text.endswith("x")
        assert {text[i : i + 2] for i in range(0, len(text) - 1, 2)} <= {"ab", "cd"}


def test_a_preempted_sequence_goes_on_where_it_was(tiny_pair: PairOf) -> None:
    """The same text as alone, though its keys and values, and its place in the grammar, were dropped on the way."""
    pair = tiny_pair("qwen3")
    grammar = "start: /[a-z]{40}/"
    alone = Bench(pair)
    alone.add("a", grammar, WILD)
    alone.driver.run()
    with small_pool(pair.ours, 5) as small:
        bench = Bench(Pair(pair.path, small, pair.theirs))
        for name in "abc":
            bench.add(name, grammar, WILD)
        bench.driver.run()
        assert bench.driver.loop.stats().num_preemptions_total > 0
    assert {bench.text(name) for name in "abc"} == {alone.text("a")}


def test_neighbours_without_a_grammar_are_not_bound(bench: Bench, tiny_pair: PairOf) -> None:
    alone = Driver(tiny_pair("qwen3").ours)
    alone.add("free", [9, 8, 7], 30)
    bench.driver.add("free", [9, 8, 7], 30)
    bench.add("bound", json_grammar({"type": "integer"}), WILD)
    assert bench.driver.run()["free"] == alone.run()["free"]


def test_the_end_of_a_grammar_ends_the_sequence(bench: Bench) -> None:
    bench.add("a", 'start: "yes"', WILD)
    bench.driver.run()
    assert bench.text("a") == "yes"
    assert bench.driver.sequences("a")[0][-1].finish_reason is FinishReason.EOS


def test_special_tokens_are_no_text(bench: Bench) -> None:
    """``<|im_start|>`` as text is spelled out; the control token is never drawn for it."""
    bench.add("a", r'start: "<|im_start|>" /[a-z]{5}/', WILD)
    bench.driver.run()
    assert bench.text("a").startswith("<|im_start|>")
    special = set(bench.vocabulary.special_token_ids)
    tokens = bench.driver.tokens["a"]
    assert special.isdisjoint(tokens[:-1])


def test_logprobs_are_the_models_own(bench: Bench, tiny_pair: PairOf) -> None:
    """Before the grammar: the first token's report is that of an unbound request, but for the token taken."""
    bench.add("bound", 'start: "yes"', WILD, num_logprobs=5)
    bench.driver.add("free", [5, 6, 7], 1, num_logprobs=5)
    bench.driver.run()
    bound, free = (bench.driver.events[name][0].logprobs[0] for name in ("bound", "free"))
    assert bound.top_token_ids == free.top_token_ids
    assert bound.top_logprobs == pytest.approx(free.top_logprobs, abs=1e-5)
    assert bound.logprob <= bound.top_logprobs[0]
