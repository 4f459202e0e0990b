"""Several sequences of one request: one prefill, shared blocks, copies where they part, ends one by one."""

from __future__ import annotations

import pytest
from fake_runner import reference
from loops import Bench, ask

from mindserve_engine.native.ledger import Ledger
from mindserve_engine.native.wire import Step
from mindserve_engine.types import FinishReason

PROMPT = [1, 2, 3, 4, 5]


def outputs(bench: Bench, request_id: str, num_sequences: int) -> list[list[int]]:
    return [bench.output(request_id, index) for index in range(num_sequences)]


def test_one_prefill_then_every_sequence_goes_its_own_way() -> None:
    bench = Bench(block_size=4)
    bench.add(ask("r", PROMPT, 6, num_sequences=3))
    bench.run()
    assert outputs(bench, "r", 3) == [reference(PROMPT, 6, index) for index in range(3)]
    assert bench.runner.batches[0].query_ends == [5]
    assert [batch.query_ends for batch in bench.runner.batches[1:]] == [[1, 2, 3]] * 5
    assert bench.loop.stats().num_free_blocks == 64


@pytest.mark.parametrize(("length", "num_blocks"), [(5, 4), (8, 5), (3, 3), (4, 4)])
def test_blocks_are_shared_until_somebody_writes(length: int, num_blocks: int) -> None:
    """Three sequences after the first common token: full blocks once, the one written to for each."""
    bench = Bench(block_size=4)
    bench.add(ask("r", list(range(length)), 6, num_sequences=3))
    bench.step()
    assert 64 - bench.loop.stats().num_free_blocks == -(-length // 4)
    bench.step()
    assert 64 - bench.loop.stats().num_free_blocks == num_blocks


def test_timings_and_prompt_figures_are_told_of_every_sequence() -> None:
    bench = Bench()
    bench.add(ask("r", PROMPT, 4, num_sequences=2))
    bench.run()
    first, second = bench.of_sequence("r", 0), bench.of_sequence("r", 1)
    assert [event.timings for event in first] == [event.timings for event in second]
    assert [event.timings[0].batch_size for event in first] == [1, 2, 2, 2]
    assert {event.num_prompt_tokens for event in first + second} == {5}


def test_logprobs_come_with_every_token_of_every_sequence() -> None:
    bench = Bench()
    bench.add(ask("r", PROMPT, 4, num_sequences=2, num_logprobs=0))
    bench.add(ask("silent", PROMPT, 4, num_sequences=2))
    bench.run()
    assert [len(event.logprobs) for event in bench.events["r"]] == [1] * 8
    assert [len(event.logprobs) for event in bench.events["silent"]] == [0] * 8


def test_more_sequences_than_the_batch_has_places() -> None:
    bench = Bench(max_batch_size=2, block_size=2)
    bench.add(ask("r", PROMPT, 5, num_sequences=5))
    bench.step()
    bench.add(ask("later", [9, 9], 3))
    while not bench.output("later"):
        bench.step()
    # whoever came later waits until the last sequence of the earlier request has its place
    assert sum(event.finish_reason is not None for event in bench.events["r"]) == 4
    bench.run()
    assert outputs(bench, "r", 5) == [reference(PROMPT, 5, index) for index in range(5)]
    assert max(len(batch.query_ends) for batch in bench.runner.batches) == 2


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_forks_survive_preemption(prefix_cache: bool) -> None:
    bench = Bench(num_blocks=8, block_size=2, prefix_cache=prefix_cache)
    bench.add(ask("a", [1, 2, 3], 10, num_sequences=3))
    bench.add(ask("b", [1, 2, 4], 10, num_sequences=2))
    bench.run()
    assert bench.loop.stats().num_preemptions_total > 0
    assert outputs(bench, "a", 3) == [reference([1, 2, 3], 10, index) for index in range(3)]
    assert outputs(bench, "b", 2) == [reference([1, 2, 4], 10, index) for index in range(2)]


def test_one_sequence_is_given_up_and_the_others_go_on() -> None:
    bench = Bench()
    bench.add(ask("r", PROMPT, 8, num_sequences=3))
    bench.step()
    bench.step()
    assert bench.loop.abort("r", 0)
    assert not bench.loop.abort("r", 0)
    bench.loop.check()
    bench.run()
    assert [len(bench.output("r", index)) for index in range(3)] == [2, 8, 8]
    assert [bench.output("r", index) for index in (1, 2)] == [reference(PROMPT, 8, index) for index in (1, 2)]
    assert bench.loop.stats().num_free_blocks == 64


def test_ends_are_each_sequence_s_own() -> None:
    """The second sequence's third token ends it; the first goes on to the limit."""
    stop = reference(PROMPT, 8, 1)[2]
    assert stop not in reference(PROMPT, 8, 0)
    bench = Bench()
    bench.add(ask("r", PROMPT, 8, num_sequences=2, stop_token_ids=(stop,)))
    bench.run()
    assert [len(bench.output("r", index)) for index in range(2)] == [8, 3]
    assert bench.of_sequence("r", 1)[-1].finish_reason is FinishReason.STOP_TOKEN
    assert bench.of_sequence("r", 0)[-1].finish_reason is FinishReason.LENGTH


def test_prompt_that_fails_fails_all_its_sequences() -> None:
    bench = Bench()
    bench.add(ask("r", PROMPT, 8, num_sequences=3))
    bench.runner.failures[0] = "NaN"
    bench.run()
    assert [(event.index, event.failure) for event in bench.events["r"]] == [(0, "NaN"), (1, "NaN"), (2, "NaN")]
    assert bench.loop.stats().num_free_blocks == 64


def test_one_sequence_fails_alone() -> None:
    bench = Bench()
    bench.add(ask("r", PROMPT, 8, num_sequences=3))
    bench.step()
    second = next(one for one in bench.loop._scheduler.running if one.index == 1)
    bench.runner.failures[second.sequence_id] = "NaN"
    bench.run()
    assert [len(bench.output("r", index)) for index in range(3)] == [8, 1, 8]
    assert bench.of_sequence("r", 1)[-1].failure == "NaN"


def test_figures_count_requests_however_many_sequences_they_have() -> None:
    bench = Bench(max_batch_size=2)
    for name in "abc":
        bench.add(ask(name, [1, 2, 3], num_sequences=4))
    for _ in range(3):
        bench.step()
    stats = bench.loop.stats()
    assert (stats.num_running, stats.num_waiting) == (len({"a", "b"}), len({"c"}))
    ledger = Ledger(max_batch_size=2)
    for name in "abc":
        ledger.open(ask(name, [1, 2, 3], num_sequences=4), lambda request_id, index: None, 4)
    ledger.take(Step(stats))
    assert (ledger.num_waiting, ledger.has_place, ledger.stats().num_waiting) == (1, False, 1)
