"""Seeds, temperatures, penalties, bias, several sequences: the model's own distribution is transformers'."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from mindserve_engine.types import SEED_MAX, SamplingParams
from tests import tiny_adapters
from tests.engine.contract.subjects import ADAPTER, MAX_STEP_TOKENS, PROMPT, Subject, tokens_of, total_logprob

pytestmark = pytest.mark.asyncio(loop_scope="session")
CLOSE = 2e-3
SEEDS = (0, 7, 2**63 - 1, 2**63, SEED_MAX - 1, SEED_MAX)


@functools.cache
def reference(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def logprobs_of(model: Any, prompt: list[int], tokens: list[int]) -> torch.Tensor:
    """[len(tokens), vocabulary] of transformers' model at each output position."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + tokens])).logits[0]
    return torch.log_softmax(logits.float(), dim=-1)[len(prompt) - 1 : -1]


def only_computed(subject: Subject) -> None:
    if not subject.computes:
        pytest.skip("a script draws nothing")


async def test_greedy_tokens_are_the_model_s(subject: Subject) -> None:
    only_computed(subject)
    for prompt in ([5], PROMPT, [3 * number % 250 for number in range(70)]):
        tokens = (await subject.tokens(prompt, max_tokens=16, ignore_eos=True))[0]
        table = logprobs_of(reference(subject.model), prompt, tokens)
        best = table.max(dim=-1).values
        taken = table[range(len(tokens)), tokens]
        assert (best - taken).max() < CLOSE


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_seed_gives_the_same_again(subject: Subject, seed: int) -> None:
    fields: dict[str, Any] = {"max_tokens": 10, "ignore_eos": True, "num_sequences": 3}
    first = await subject.tokens(sampling=SamplingParams(seed=seed), **fields)
    assert await subject.tokens(sampling=SamplingParams(seed=seed), **fields) == first
    if subject.computes:
        assert len({tuple(tokens) for tokens in first}) == 3


async def test_a_prompt_in_pieces_changes_no_draw(subject: Subject) -> None:
    """It is longer than a step; asked again, its beginning is found in the cache and it is one piece."""
    prompt = [7 * number % 250 for number in range(MAX_STEP_TOKENS + 70)]
    fields: dict[str, Any] = {"max_tokens": 10, "ignore_eos": True, "sampling": SamplingParams(seed=5)}
    first = await subject.tokens(prompt, **fields)
    assert await subject.tokens(prompt, **fields) == first


async def test_seeds_differ(subject: Subject) -> None:
    only_computed(subject)
    found = [
        tuple(tokens)
        for seed in SEEDS
        for tokens in await subject.tokens(
            max_tokens=10, ignore_eos=True, num_sequences=2, sampling=SamplingParams(seed=seed)
        )
    ]
    assert len(set(found)) == len(found)


async def test_company_changes_no_draw(subject: Subject) -> None:
    fields: dict[str, Any] = {"max_tokens": 10, "ignore_eos": True, "sampling": SamplingParams(seed=11)}
    alone = await subject.tokens(**fields)
    together = await subject.tokens(num_sequences=3, **fields)
    assert together[0] == alone[0]


async def test_several_greedy_sequences_are_equal(subject: Subject) -> None:
    found = await subject.tokens(max_tokens=6, ignore_eos=True, num_sequences=3)
    assert found == [found[0]] * 3


@pytest.mark.parametrize("temperature", [1e-9, 0.004, 0.5, 1.0, 2.0, 3.0, 50.0, 1e300])
async def test_any_temperature(subject: Subject, temperature: float) -> None:
    """The likeliest token of one position is drawn as often as its probability at that temperature says."""
    number = 8 * 20
    requests = [
        subject.ask(
            max_tokens=1,
            ignore_eos=True,
            num_sequences=8,
            sampling=SamplingParams(temperature=temperature, seed=1000 * n, top_k=2),
        )
        for n in range(number // 8)
    ]
    drawn = [tokens[0] for request in requests for tokens in tokens_of(await subject.collect(request))]
    if not subject.computes:
        return
    best = logprobs_of(reference(subject.model), PROMPT, [0])[0].topk(2)
    gap = float(best.values[0] - best.values[1])
    expected = 1 / (1 + math.exp(-min(700.0, gap / temperature)))
    assert set(drawn) <= set(best.indices.tolist())
    deviation = math.sqrt(max(expected * (1 - expected), 1e-4) / number)
    assert abs(drawn.count(int(best.indices[0])) / number - expected) < 5 * deviation


async def test_logprobs_are_the_model_s_own(subject: Subject) -> None:
    sampling = SamplingParams(temperature=1.7, seed=5, top_k=40, presence_penalty=1.0, repetition_penalty=1.3)
    events = await subject.run(max_tokens=12, ignore_eos=True, sampling=sampling, num_logprobs=4, num_sequences=2)
    for index, tokens in enumerate(tokens_of(events)):
        entries = [entry for event in events if event.index == index for entry in event.logprobs]
        assert len(entries) == len(tokens)
        assert all(len(entry.top_token_ids) == len(entry.top_logprobs) == 4 for entry in entries)
        assert all(entry.top_logprobs == sorted(entry.top_logprobs, reverse=True) for entry in entries)
        if subject.computes:
            table = logprobs_of(reference(subject.model), PROMPT, tokens)
            for entry, row, token in zip(entries, table, tokens, strict=True):
                assert entry.logprob == pytest.approx(float(row[token]), abs=CLOSE)
                assert entry.top_logprobs == pytest.approx(row.topk(4).values.tolist(), abs=CLOSE)
                assert [float(row[top]) for top in entry.top_token_ids] == pytest.approx(entry.top_logprobs, abs=CLOSE)


async def test_sums_of_logprobs_rank_the_sequences(subject: Subject) -> None:
    """What ``best_of`` needs: asked for no likeliest tokens, each sequence still tells its own log-probabilities."""
    events = await subject.run(
        max_tokens=6, ignore_eos=True, num_sequences=4, num_logprobs=0, sampling=SamplingParams(seed=2)
    )
    for index, tokens in enumerate(tokens_of(events)):
        assert all(entry.top_token_ids == [] for event in events for entry in event.logprobs)
        total = total_logprob(events, index)
        assert math.isfinite(total)
        if subject.computes:
            table = logprobs_of(reference(subject.model), PROMPT, tokens)
            assert total == pytest.approx(float(table[range(len(tokens)), tokens].sum()), abs=0.02)


async def test_without_a_wish_there_are_no_logprobs(subject: Subject) -> None:
    assert all(event.logprobs == [] for event in await subject.run(max_tokens=3))


PENALTIES: list[dict[str, float]] = [
    {"repetition_penalty": 5.0},
    {"presence_penalty": 2.0},
    {"frequency_penalty": 2.0},
    {"frequency_penalty": -2.0},
    {"repetition_penalty": 0.2},
]


@pytest.mark.parametrize("penalties", PENALTIES, ids=str)
async def test_penalties(subject: Subject, penalties: dict[str, float]) -> None:
    only_computed(subject)
    sampling = SamplingParams(temperature=0.0, **penalties)
    tokens = (await subject.tokens(max_tokens=16, ignore_eos=True, sampling=sampling))[0]
    model = reference(subject.model)
    for position, token in enumerate(tokens):
        with torch.no_grad():
            row = model(torch.tensor([PROMPT + tokens[:position]])).logits[0, -1].double()
        for other in {*PROMPT, *tokens[:position]}:
            factor = sampling.repetition_penalty
            row[other] = row[other] / factor if row[other] > 0 else row[other] * factor
        for other in set(tokens[:position]):
            row[other] -= sampling.presence_penalty + sampling.frequency_penalty * tokens[:position].count(other)
        assert float(row.max() - row[token]) < CLOSE


async def test_bias(subject: Subject) -> None:
    only_computed(subject)
    plain = (await subject.tokens(max_tokens=1))[0][0]
    raised = SamplingParams(temperature=0.0, logit_bias=((42, 100.0),))
    assert await subject.tokens(max_tokens=4, ignore_eos=True, sampling=raised) == [[42] * 4]
    lowered = SamplingParams(temperature=0.0, logit_bias=((plain, -100.0),))
    assert plain not in (await subject.tokens(max_tokens=6, sampling=lowered))[0]


@pytest.mark.parametrize("top_k", [1, 2**31 - 1])
async def test_extremes_of_top_k(subject: Subject, top_k: int) -> None:
    sampling = SamplingParams(seed=4, top_k=top_k)
    found = await subject.tokens(max_tokens=6, ignore_eos=True, sampling=sampling)
    if top_k == 1:
        assert found == await subject.tokens(max_tokens=6, ignore_eos=True)


async def test_a_tiny_top_p_takes_the_likeliest(subject: Subject) -> None:
    sampling = SamplingParams(seed=4, top_p=1.1e-6)
    found = await subject.tokens(max_tokens=6, ignore_eos=True, sampling=sampling)
    assert found == await subject.tokens(max_tokens=6, ignore_eos=True)


async def test_an_adapter_s_tokens_are_those_of_the_merged_model(subject: Subject, tmp_path: Path) -> None:
    only_computed(subject)
    plain = await subject.tokens(max_tokens=12, ignore_eos=True)
    found = (await subject.tokens(max_tokens=12, ignore_eos=True, adapter=ADAPTER))[0]
    assert [found] != plain
    merged = tiny_adapters.write(subject.model, tmp_path, seed=5)
    table = logprobs_of(merged, PROMPT, found)
    assert (table.max(dim=-1).values - table[range(12), found]).max() < 10 * CLOSE
    assert await subject.tokens(max_tokens=12, ignore_eos=True) == plain
