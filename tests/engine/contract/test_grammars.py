"""Constrained decoding: the text fits, token by token, and ends where the grammar ends."""

from __future__ import annotations

import json
import re

import pytest

from mindserve_engine.types import FinishReason, SamplingParams
from tests.engine.contract.subjects import Subject, ends_of, tokens_of, vocabulary

pytestmark = pytest.mark.asyncio(loop_scope="session")
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def text_of(tokens: list[int]) -> str:
    table = vocabulary().token_bytes
    special = set(vocabulary().special_token_ids)
    return b"".join(table[token] for token in tokens if token not in special).decode("utf-8")


@pytest.fixture(autouse=True)
def _computed(subject: Subject) -> None:
    if not subject.computes:
        pytest.skip("a script follows no grammar")


@pytest.mark.parametrize("seed", range(3))
async def test_text_fits_a_pattern(subject: Subject, seed: int) -> None:
    grammar = 'start: "id-" /[a-f]{2,4}/ ("!" | "?")'
    events = await subject.run(max_tokens=30, grammar=grammar, sampling=SamplingParams(seed=seed), num_sequences=2)
    for tokens in tokens_of(events):
        assert re.fullmatch(r"id-[a-f]{2,4}[!?]", text_of(tokens))
    assert set(ends_of(events).values()) == {FinishReason.EOS}


async def test_text_fits_a_schema(subject: Subject) -> None:
    grammar = f"%llguidance {{}}\nstart: %json {json.dumps(SCHEMA)}\n"
    events = await subject.run(max_tokens=80, grammar=grammar, sampling=SamplingParams(seed=1))
    answer = json.loads(text_of(tokens_of(events)[0]))
    assert set(answer) == {"name", "age"}
    assert len(answer["name"]) <= 5
    assert 0 <= answer["age"] <= 99


async def test_a_limit_cuts(subject: Subject) -> None:
    events = await subject.run(max_tokens=3, grammar='start: "abcdef"')
    assert text_of(tokens_of(events)[0]) == "abc"
    assert ends_of(events) == {0: FinishReason.LENGTH}


async def test_others_are_not_bound(subject: Subject) -> None:
    free = await subject.tokens(max_tokens=8, ignore_eos=True)
    bound = await subject.engine.admit(subject.ask(max_tokens=30, grammar="start: /[0-9]{20}/"))
    assert await subject.tokens(max_tokens=8, ignore_eos=True) == free
    tokens = [token async for event in bound for token in event.token_ids]
    assert re.fullmatch("[0-9]{20}", text_of(tokens))
