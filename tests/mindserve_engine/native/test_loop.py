"""The loop on a fake model: outputs equal the reference, whatever the scheduler does; ends, failures, timings."""

from pathlib import Path

import pytest
from fake_runner import FakeRunner, reference
from loops import Bench, ask, fake_info

from mindserve_engine.interface import EngineError
from mindserve_engine.native.block_pool import PoolCorrupted
from mindserve_engine.native.loop import EngineLoop
from mindserve_engine.options import EngineOptions
from mindserve_engine.types import FinishReason, TokenTiming


def test_output_equals_the_reference() -> None:
    bench = Bench()
    bench.add(ask("r", [5, 6, 7], 10))
    bench.run()
    assert bench.output("r") == reference([5, 6, 7], 10)
    assert [event.finish_reason for event in bench.events["r"]] == [None] * 9 + [FinishReason.LENGTH]
    assert bench.runner.remembered == set()
    assert bench.loop.stats().num_free_blocks == 64


def test_mixed_batch_runs_decodes_beside_chunks_within_the_budget() -> None:
    bench = Bench(max_step_tokens=6)
    bench.add(ask("short", [1, 2], 12))
    bench.step()
    bench.add(ask("long", list(range(20)), 4))
    bench.run()
    assert bench.output("short") == reference([1, 2], 12)
    assert bench.output("long") == reference(list(range(20)), 4)
    assert max(len(batch.token_ids) for batch in bench.runner.batches) == 6
    # while the long prompt is read in chunks of what the decode leaves, the decode goes on
    assert [batch.query_ends for batch in bench.runner.batches[1:5]] == [[1, 6]] * 4
    assert [len(batch.samples) for batch in bench.runner.batches[1:5]] == [1, 1, 1, 2]


def test_batch_size_is_a_limit_and_requests_are_served_in_order() -> None:
    bench = Bench(max_batch_size=2, max_step_tokens=100)
    for name in "abcd":
        bench.add(ask(name, [ord(name)], 3))
    first = bench.step()
    assert [event.request_id for event in first] == ["a", "b"]
    assert (bench.loop.stats().num_running, bench.loop.stats().num_waiting) == (2, 2)
    bench.run()
    assert [len(batch.query_ends) for batch in bench.runner.batches] == [2] * 6
    assert max(len(batch.query_ends) for batch in bench.runner.batches) == 2


def test_preempted_sequences_are_recomputed_and_lose_nothing() -> None:
    bench = Bench(num_blocks=8, block_size=2, max_batch_size=4)
    for name in "abc":
        bench.add(ask(name, [ord(name), 1], 12))
    bench.run()
    for name in "abc":
        assert bench.output(name) == reference([ord(name), 1], 12)
        assert {event.num_cached_tokens for event in bench.events[name]} == {0}
    stats = bench.loop.stats()
    assert stats.num_preemptions_total > 0
    # what is taken from the cache to be recomputed is no success of the cache
    assert (stats.prefix_query_tokens_total, stats.prefix_hit_tokens_total) == (6, 0)
    assert bench.runner.remembered == set()


@pytest.mark.parametrize(("num_blocks", "num_spare"), [(8, 1), (200, 3)])
def test_newcomers_leave_blocks_to_grow_for_those_who_run(num_blocks: int, num_spare: int) -> None:
    longest = 2 * (num_blocks - 1 - num_spare)
    for length, starts in ((longest, True), (longest + 1, False)):
        bench = Bench(num_blocks=num_blocks, block_size=2)
        bench.add(ask("old", [1], 9))
        bench.step()
        bench.add(ask("new", [2] * length, 1))
        bench.step()
        assert bench.loop.stats().num_waiting == (0 if starts else 1)
        bench.run()
        assert bench.output("new") == reference([2] * length, 1)
        assert bench.loop.stats().num_preemptions_total == 0


def test_blocks_of_an_aborted_prompt_are_shared_as_far_as_they_were_computed() -> None:
    bench = Bench(block_size=2, max_step_tokens=4)
    prompt = list(range(11))
    bench.add(ask("gone", prompt, 3))
    bench.step()
    bench.loop.abort("gone")
    bench.add(ask("again", prompt, 3))
    bench.run()
    assert bench.events["again"][0].num_cached_tokens == 4
    assert bench.output("again") == reference(prompt, 3)


def test_cache_smaller_than_the_context_is_refused() -> None:
    with pytest.raises(EngineError, match="holds 16 tokens, fewer than the context of 17"):
        EngineLoop(FakeRunner(4, 4), fake_info(17, 1), EngineOptions(model_path=Path("none")))


def test_lost_sequence_is_noticed() -> None:
    bench = Bench()
    bench.add(ask("r", [1], 4))
    bench.loop._scheduler.waiting.clear()
    with pytest.raises(PoolCorrupted, match=r"requests \[0\] are live, \[\] scheduled"):
        bench.loop.check()


def test_oldest_is_never_preempted_by_younger_ones() -> None:
    bench = Bench(num_blocks=6, block_size=2)
    bench.add(ask("old", [1], 10))
    for number in range(4):
        bench.add(ask(f"young{number}", [2], 10))
    for num_steps in range(1, 11):
        bench.step()
        assert len(bench.output("old")) == num_steps
    bench.run()


def test_prefix_hits_are_whole_blocks_short_of_the_last_token() -> None:
    bench = Bench(block_size=4)
    prompt = list(range(8))
    bench.add(ask("first", prompt, 2))
    bench.run()
    assert bench.events["first"][0].num_cached_tokens == 0
    bench.add(ask("same", prompt, 2))
    bench.add(ask("longer", [*prompt, 9], 2))
    bench.add(ask("other", [7, *prompt], 2))
    bench.run()
    # the last token is always run: of an exact repetition the last block is not taken
    assert [bench.events[name][0].num_cached_tokens for name in ("same", "longer", "other")] == [4, 8, 0]
    assert bench.output("same") == bench.output("first") == reference(prompt, 2)
    assert bench.output("longer") == reference([*prompt, 9], 2)
    stats = bench.loop.stats()
    assert (stats.prefix_query_tokens_total, stats.prefix_hit_tokens_total) == (8 + 8 + 9 + 9, 12)


def test_generated_tokens_are_shared_with_the_next_turn() -> None:
    bench = Bench(block_size=2)
    bench.add(ask("turn1", [1, 2, 3], 6))
    bench.run()
    conversation = [1, 2, 3, *bench.output("turn1"), 50]
    bench.add(ask("turn2", conversation, 3))
    bench.run()
    assert bench.events["turn2"][0].num_cached_tokens == 8
    assert bench.output("turn2") == reference(conversation, 3)


def test_prefix_cache_can_be_turned_off() -> None:
    bench = Bench(prefix_cache=False)
    for name in "ab":
        bench.add(ask(name, list(range(12)), 2))
        bench.run()
    assert bench.events["b"][0].num_cached_tokens == 0
    assert bench.loop.stats().prefix_query_tokens_total == 0


@pytest.mark.parametrize("place", ["waiting", "prefill", "decode"])
def test_abort_frees_at_once(place: str) -> None:
    bench = Bench(max_batch_size=1 if place == "waiting" else 9, max_step_tokens=4)
    bench.add(ask("other", [1], 5))
    bench.step()
    bench.add(ask("gone", list(range(9)), 50))
    for _ in range({"waiting": 1, "prefill": 1, "decode": 5}[place]):
        bench.step()
    assert bench.loop.abort("gone")
    bench.loop.check()
    assert not bench.loop.abort("gone")
    bench.run()
    assert bench.output("other") == reference([1], 5)
    assert bench.loop.stats().num_free_blocks == 64
    assert bench.runner.remembered == set()
    assert all(event.finish_reason is None for event in bench.events["gone"])


def test_how_sequences_end() -> None:
    output = reference([1, 2, 3], 10)
    eos, stop = output[2], output[4]
    bench = Bench(num_blocks=3, block_size=4, eos=(eos,))
    bench.add(ask("eos", [1, 2, 3], 10))
    bench.add(ask("stop", [1, 2, 3], 10, ignore_eos=True, stop_token_ids=(stop, 99999)))
    bench.add(ask("context", [1, 2, 3], 100, ignore_eos=True))
    bench.run()
    ends = {name: (bench.output(name), events[-1].finish_reason) for name, events in bench.events.items()}
    assert ends == {
        "eos": (output[:3], FinishReason.EOS),
        "stop": (output[:5], FinishReason.STOP_TOKEN),
        "context": (output[:9], FinishReason.LENGTH),
    }


def test_broken_logits_fail_one_sequence_and_are_not_shared() -> None:
    bench = Bench(block_size=2)
    bench.runner.failures[0] = "the logits are not finite"
    bench.add(ask("bad", [1, 2, 3, 4, 5], 5))
    bench.add(ask("good", [9, 2, 3, 4, 5], 5))
    bench.run()
    (failed,) = bench.events["bad"]
    assert (failed.failure, failed.finish_reason, failed.token_ids) == ("the logits are not finite", None, [])
    assert bench.output("good") == reference([9, 2, 3, 4, 5], 5)
    bench.add(ask("again", [1, 2, 3, 4, 5], 5))
    bench.run()
    assert bench.events["again"][0].num_cached_tokens == 0


def test_failed_chunks_are_not_shared_either() -> None:
    bench = Bench(block_size=2, max_step_tokens=2)
    bench.runner.failures[0] = "the logits are not finite"
    bench.add(ask("bad", [1, 2, 3, 4, 5], 5))
    bench.run()
    bench.add(ask("again", [1, 2, 3, 4, 5], 1))
    bench.run()
    assert bench.events["again"][0].num_cached_tokens == 0


def test_timings_are_measured_per_token() -> None:
    bench = Bench(max_step_tokens=4)
    bench.add(ask("r", [1, 2, 3, 4, 5, 6], 2))
    bench.clock.now += 0.5
    bench.run()
    first, second = (event.timings[0] for event in bench.events["r"])
    # clock readings: 0.501 first chunk's start, 0.502 its end, 0.503 second chunk's start, 0.504 its end
    assert first == TokenTiming(501000, 1, pytest.approx(3.0))
    assert second == TokenTiming(1000, 1, pytest.approx(1.0))


def test_batch_size_counts_all_who_took_part() -> None:
    """Also those whose prompt goes on in the next step, and those who got nothing but a failure."""
    bench = Bench(max_step_tokens=4)
    bench.add(ask("decode", [1], 4))
    bench.add(ask("long", [1, 2, 3, 4, 5], 1))
    bench.runner.failures[1] = "broken"
    bench.run()
    assert [event.timings[0].batch_size for event in bench.events["decode"]] == [2, 2, 1, 1]
    assert set(bench.failures) == {"long"}
