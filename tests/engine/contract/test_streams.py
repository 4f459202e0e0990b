"""What the events of a request look like, whatever engine sends them."""

from __future__ import annotations

import asyncio
import math
import time

import pytest

from mindserve_engine.types import FinishReason, SamplingParams, SequenceEvent
from tests.engine.contract.subjects import GREEDY, PROMPT, Subject, ends_of, tokens_of

pytestmark = pytest.mark.asyncio(loop_scope="session")


def check_events(events: list[SequenceEvent], num_sequences: int = 1, prompt: list[int] = PROMPT) -> None:
    """What holds for every request that came to its end."""
    assert {event.index for event in events} == set(range(num_sequences))
    for index in range(num_sequences):
        own = [event for event in events if event.index == index]
        assert [event.finish_reason for event in own[:-1]] == [None] * (len(own) - 1)
        assert own[-1].finish_reason is not None
    for event in events:
        assert event.failure is None
        assert len(event.timings) == len(event.token_ids)
        assert event.num_prompt_tokens == len(prompt)
        assert 0 <= event.num_cached_tokens <= len(prompt)
        for timing in event.timings:
            assert timing.queue_wait_us >= 0
            assert timing.batch_size >= 1
            assert math.isfinite(timing.step_ms)
            assert timing.step_ms >= 0


async def test_a_greedy_answer_is_the_same_again(subject: Subject) -> None:
    first, second = await subject.run(max_tokens=12), await subject.run(max_tokens=12)
    check_events(first)
    check_events(second)
    assert tokens_of(first) == tokens_of(second)
    assert subject.engine.health().state.value == "ready"


async def test_length(subject: Subject) -> None:
    events = await subject.run(max_tokens=5, ignore_eos=True)
    assert [len(tokens) for tokens in tokens_of(events)] == [5]
    assert ends_of(events) == {0: FinishReason.LENGTH}


async def test_the_end_of_the_context_is_an_end_by_length(subject: Subject) -> None:
    room = 6
    prompt = [97] * (subject.engine.info.max_context - room)
    events = await subject.run(prompt, max_tokens=1000, ignore_eos=True)
    check_events(events, prompt=prompt)
    assert [len(tokens) for tokens in tokens_of(events)] == [room]
    assert ends_of(events) == {0: FinishReason.LENGTH}


async def test_a_stop_token_is_the_last_token(subject: Subject) -> None:
    whole = (await subject.tokens(max_tokens=5, ignore_eos=True))[0]
    stop = whole[3]
    outside = subject.engine.info.vocab_size + 7
    events = await subject.run(max_tokens=5, ignore_eos=True, stop_token_ids=(stop, outside, 2**31 - 1))
    assert tokens_of(events) == [whole[: whole.index(stop) + 1]]
    assert ends_of(events) == {0: FinishReason.STOP_TOKEN}


async def test_the_model_s_end_is_the_last_token(subject: Subject) -> None:
    """A bias makes the models say it at once; the script says it at its end."""
    eos = subject.engine.info.eos_token_ids[0]
    sampling = SamplingParams(temperature=0.0, logit_bias=((eos, 100.0),)) if subject.computes else GREEDY
    events = await subject.run(max_tokens=20, sampling=sampling)
    check_events(events)
    assert tokens_of(events)[0][-1] == eos
    assert ends_of(events) == {0: FinishReason.EOS}
    named = await subject.run(max_tokens=20, sampling=sampling, stop_token_ids=(eos,))
    assert ends_of(named) == {0: FinishReason.EOS}, "the model's own end comes before the request's"


async def test_ignored_ends_go_on(subject: Subject) -> None:
    eos = subject.engine.info.eos_token_ids[0]
    sampling = SamplingParams(temperature=0.0, logit_bias=((eos, 100.0),)) if subject.computes else GREEDY
    events = await subject.run(max_tokens=12, sampling=sampling, ignore_eos=True)
    assert [len(tokens) for tokens in tokens_of(events)] == [12]
    assert ends_of(events) == {0: FinishReason.LENGTH}


@pytest.mark.parametrize("num_sequences", [1, 3])
async def test_a_slow_consumer_misses_nothing(subject: Subject, num_sequences: int) -> None:
    request = subject.ask(max_tokens=9, ignore_eos=True, num_sequences=num_sequences, sampling=SamplingParams(seed=3))
    expected = tokens_of(await subject.collect(request))
    events = []
    async for event in await subject.engine.admit(
        subject.ask(max_tokens=9, ignore_eos=True, num_sequences=num_sequences, sampling=SamplingParams(seed=3))
    ):
        events.append(event)
        await subject.tokens(max_tokens=1)  # others are served meanwhile
    check_events(events, num_sequences)
    assert tokens_of(events) == expected


async def test_many_at_once_are_all_answered(subject: Subject) -> None:
    prompts = [[97 + number, *range(number + 1)] for number in range(8)]
    alone = [await subject.tokens(prompt, max_tokens=6, ignore_eos=True) for prompt in prompts]
    answers = await asyncio.gather(*(subject.run(prompt, max_tokens=6, ignore_eos=True) for prompt in prompts))
    for prompt, events, expected in zip(prompts, answers, alone, strict=True):
        check_events(events, prompt=prompt)
        assert tokens_of(events) == expected
    await subject.idle()


async def test_batch_sizes_tell_of_company(subject: Subject) -> None:
    if not subject.computes:
        pytest.skip("a script tells the batch sizes that stand in it")
    answers = await asyncio.gather(*(subject.run([97 + n], max_tokens=24, ignore_eos=True) for n in range(4)))
    sizes = [timing.batch_size for events in answers for event in events for timing in event.timings]
    assert max(sizes) == 4
    alone = await subject.run(max_tokens=4)
    assert {timing.batch_size for event in alone for timing in event.timings} == {1}


async def test_who_must_wait_is_told_so(subject: Subject) -> None:
    """All places are taken until one is given up; most of that time lies after the newcomer's arrival in the core."""
    if not subject.computes:
        pytest.skip("a script tells the waits that stand in it")
    places = range(subject.engine.info.max_batch_size)
    running = [await subject.engine.admit(subject.ask([97 + n], max_tokens=300, ignore_eos=True)) for n in places]
    streams = [aiter(generation) for generation in running]
    for stream in streams:
        await anext(stream)
    later = await subject.engine.admit(subject.ask([98], max_tokens=1))
    began = time.monotonic()
    for _ in range(60):
        await anext(streams[0])
    waited_us = (time.monotonic() - began) * 1e6
    for generation in running:
        generation.abort()
    first = await anext(aiter(later))
    assert first.timings[0].queue_wait_us > waited_us / 2
    await subject.idle()


async def test_a_prompt_that_was_seen_is_found_in_the_cache(subject: Subject) -> None:
    if not subject.computes:
        pytest.skip("a script tells the cached tokens that stand in it")
    block = subject.engine.info.block_size
    prompt = [7 + number % 200 for number in range(3 * block + 1)]
    before = subject.engine.stats()
    cached = [await subject.run(prompt, max_tokens=2) for _ in range(2)]
    assert [events[-1].num_cached_tokens for events in cached] == [0, 3 * block]
    await subject.idle()
    after = subject.engine.stats()
    assert after.prefix_query_tokens_total - before.prefix_query_tokens_total == 2 * len(prompt)
    assert after.prefix_hit_tokens_total - before.prefix_hit_tokens_total == 3 * block
