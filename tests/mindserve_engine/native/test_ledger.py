"""The client side's books: what counts as waiting, where there is room, counters over several processes."""

import pytest
from loops import ask

from mindserve_engine.generation import QueuedGeneration
from mindserve_engine.interface import GenerationFailed
from mindserve_engine.native.ledger import Ledger, total
from mindserve_engine.native.wire import Step
from mindserve_engine.types import EngineStats, FinishReason, SequenceEvent


def opened(ledger: Ledger, *names: str, prompt: int = 4) -> list[QueuedGeneration]:
    return [ledger.open(ask(name, [1] * prompt), lambda request_id, index: None, 4) for name in names]


def event(name: str, finish_reason: FinishReason | None = None) -> SequenceEvent:
    return SequenceEvent(name, 0, [1], [], finish_reason)


def failed(name: str) -> SequenceEvent:
    return SequenceEvent(name, 0, [], [], failure="broken")


def test_requests_wait_beyond_the_batch() -> None:
    ledger = Ledger(max_batch_size=2)
    opened(ledger, "a")
    assert (ledger.num_waiting, ledger.has_place) == (0, True)
    opened(ledger, "b", "c")
    assert (ledger.num_waiting, ledger.has_place) == (1, False)


def test_requests_wait_beyond_what_the_blocks_allow() -> None:
    ledger = Ledger(max_batch_size=9)
    opened(ledger, "a", "b", "c")
    ledger.take(Step(EngineStats(num_running=1, num_waiting=2)))
    assert (ledger.num_waiting, ledger.has_place) == (2, False)


def test_gauges_count_what_was_sent_during_a_long_step() -> None:
    ledger = Ledger(max_batch_size=9)
    opened(ledger, "a", "b")
    assert (ledger.stats().num_running, ledger.stats().num_waiting) == (0, 2)
    ledger.take(Step(EngineStats(num_running=1, num_waiting=1)))
    opened(ledger, "c")
    assert (ledger.stats().num_running, ledger.stats().num_waiting) == (1, 2)
    ledger.take(Step(EngineStats(num_running=2), events=[event("a", FinishReason.EOS)]))
    assert (ledger.stats().num_running, ledger.stats().num_waiting) == (2, 0)
    ledger.fail_all("gone")
    assert (ledger.stats().num_running, ledger.stats().num_waiting) == (0, 0)


def test_free_blocks_are_promised_until_the_process_tells() -> None:
    ledger = Ledger(max_batch_size=9)
    ledger.update(EngineStats(num_free_blocks=10))
    opened(ledger, "a", prompt=9)
    assert ledger.num_free_blocks == 7
    ledger.take(Step(EngineStats(num_free_blocks=8)))
    assert ledger.num_free_blocks == 8


async def test_steps_reach_their_requests_and_ended_ones_leave() -> None:
    ledger = Ledger(max_batch_size=9)
    a, b, c, d = opened(ledger, "a", "b", "c", "d")
    d.abort()
    assert "d" in ledger
    events = [event("a"), event("b", FinishReason.EOS), event("stranger"), event("d"), failed("c")]
    ledger.take(Step(EngineStats(), events=events, aborted=["d"]))
    assert len(ledger) == 1
    assert (await anext(a)).request_id == "a"
    assert [got.finish_reason async for got in b] == [FinishReason.EOS]
    assert [got async for got in d] == []
    assert [got.failure async for got in c] == ["broken"]


async def test_aborted_request_that_ends_by_itself_leaves_too() -> None:
    ledger = Ledger(max_batch_size=9)
    (generation,) = opened(ledger, "a")
    generation.abort()
    ledger.take(Step(EngineStats(), events=[event("a", FinishReason.LENGTH)]))
    assert len(ledger) == 0


async def test_abort_drops_what_nobody_has_taken() -> None:
    ledger = Ledger(max_batch_size=9)
    (generation,) = opened(ledger, "a")
    ledger.take(Step(EngineStats(), events=[event("a"), event("a")]))
    await anext(generation)
    generation.abort()
    assert [got async for got in generation] == []


async def test_failure_comes_after_what_was_generated() -> None:
    ledger = Ledger(max_batch_size=9)
    (generation,) = opened(ledger, "a")
    ledger.take(Step(EngineStats(), events=[event("a")]))
    ledger.fail_all("gone")
    assert (await anext(generation)).token_ids == [1]
    with pytest.raises(GenerationFailed, match="gone"):
        await anext(generation)
    assert [got async for got in generation] == []


def test_counters_survive_a_process_and_gauges_do_not() -> None:
    ledger = Ledger(max_batch_size=9)
    ledger.update(EngineStats(num_running=3, num_preemptions_total=5, prefix_query_tokens_total=7))
    ledger.fail_all("gone")
    ledger.count_restart()
    assert ledger.stats() == EngineStats(num_preemptions_total=5, prefix_query_tokens_total=7, num_restarts_total=1)
    ledger.update(EngineStats(num_running=1, num_preemptions_total=1))
    assert ledger.stats().num_preemptions_total == 6
    assert total([ledger.stats(), ledger.stats()]).num_running == 2
