"""A request that is given up ends at once and leaves nothing behind."""

from __future__ import annotations

import asyncio

import pytest

from mindserve_engine.types import EngineState, SamplingParams
from tests.engine.contract.subjects import Subject

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_an_aborted_request_ends_without_a_reason(subject: Subject) -> None:
    generation = await subject.engine.admit(subject.ask(max_tokens=300, ignore_eos=True))
    events = []
    async for event in generation:
        events.append(event)
        if len(events) == 3:
            generation.abort()
            generation.abort()
    assert len(events) == 3
    assert all(event.finish_reason is None for event in events)
    await subject.idle()
    generation.abort()
    await subject.run(max_tokens=2)


async def test_a_request_that_has_not_begun(subject: Subject) -> None:
    generation = await subject.engine.admit(subject.ask(max_tokens=300, ignore_eos=True))
    generation.abort()
    assert [event async for event in generation] == []
    await subject.idle()


@pytest.mark.parametrize("fields", [{"num_sequences": 4}, {"num_sequences": 2, "beam_width": 4}], ids=["n", "beams"])
async def test_all_sequences_go(subject: Subject, fields: dict[str, int]) -> None:
    generation = await subject.engine.admit(subject.ask(max_tokens=300, ignore_eos=True, **fields))
    await asyncio.sleep(0)
    generation.abort()
    assert [event async for event in generation] == []
    await subject.idle()
    assert subject.engine.health().state is EngineState.READY


async def test_one_sequence_is_given_up(subject: Subject) -> None:
    request = subject.ask(max_tokens=30, ignore_eos=True, num_sequences=3, sampling=SamplingParams(seed=9))
    expected = await subject.tokens(max_tokens=30, ignore_eos=True, num_sequences=3, sampling=SamplingParams(seed=9))
    generation = await subject.engine.admit(request)
    found: dict[int, list[int]] = {0: [], 1: [], 2: []}
    is_stopped = False
    async for event in generation:
        assert not (is_stopped and event.index == 1)
        found[event.index] += event.token_ids
        if not is_stopped and found[1]:
            generation.stop(1)
            generation.stop(1)
            is_stopped = True
    assert (found[0], found[2]) == (expected[0], expected[2])
    assert found[1] == expected[1][: len(found[1])]
    assert len(found[1]) < 30
    await subject.idle()


@pytest.mark.parametrize("index", [0, 1])
async def test_a_sequence_is_given_up_before_its_first_token(subject: Subject, index: int) -> None:
    expected = await subject.tokens(max_tokens=12, ignore_eos=True, num_sequences=2, sampling=SamplingParams(seed=9))
    request = subject.ask(max_tokens=12, ignore_eos=True, num_sequences=2, sampling=SamplingParams(seed=9))
    generation = await subject.engine.admit(request)
    generation.stop(index)
    events = [event async for event in generation]
    assert {event.index for event in events} == {1 - index}
    assert [token for event in events for token in event.token_ids] == expected[1 - index]
    await subject.idle()


async def test_a_hypothesis_is_given_up(subject: Subject) -> None:
    fields = {"max_tokens": 4, "ignore_eos": True, "num_sequences": 2, "beam_width": 3}
    expected = await subject.tokens(**fields)
    generation = await subject.engine.admit(subject.ask(**fields))
    generation.stop(0)
    assert [event.token_ids async for event in generation] == [expected[1]]
    await subject.idle()


async def test_stopping_the_last_sequence_ends_the_request(subject: Subject) -> None:
    generation = await subject.engine.admit(subject.ask(max_tokens=300, ignore_eos=True, num_sequences=2))
    generation.stop(0)
    generation.stop(1)
    assert [event async for event in generation] == []
    await subject.idle()


async def test_a_consumer_that_is_cancelled(subject: Subject) -> None:
    generation = await subject.engine.admit(subject.ask(max_tokens=300, ignore_eos=True))
    consumer = asyncio.create_task(anext(aiter(generation)))
    await asyncio.sleep(0)
    consumer.cancel()
    await asyncio.gather(consumer, return_exceptions=True)
    generation.abort()
    await subject.idle()
