"""Steps that raise: the culprits fail, their neighbours go on as if nothing had happened."""

from __future__ import annotations

import pytest
import torch
from fake_runner import FakeRunner, reference
from hypothesis import given, settings
from hypothesis import strategies as st
from loops import Bench, ask

from mindserve_engine.native.batch import Sampled, StepBatch
from mindserve_engine.native.execution import MAX_FAILED_STEPS, RAISED, LoopBroken
from mindserve_engine.native.sampling.sampler import Sampler
from mindserve_engine.types import SamplingParams

POISON = 950


def poisoned(**options: object) -> Bench:
    bench = Bench(**options)
    bench.runner.poison = {POISON}
    return bench


@pytest.mark.parametrize("place", [0, 1, 2])
def test_culprit_fails_alone_wherever_it_stands(place: int) -> None:
    bench = poisoned()
    for number in range(3):
        bench.add(ask(str(number), [number, POISON] if number == place else [number, 7], 6))
    bench.run()
    assert bench.failures == {str(place): RAISED.failure}
    for number in {0, 1, 2} - {place}:
        assert bench.output(str(number)) == reference([number, 7], 6)
    assert bench.runner.remembered == set()
    assert bench.loop.stats().num_free_blocks == 64


def test_culprit_that_turns_bad_while_others_decode() -> None:
    prompt = [3, 4, 5]
    bench = Bench()
    bench.add(ask("bad", prompt, 9))
    bench.add(ask("good", [6], 9))
    bench.runner.poison = {reference(prompt, 4)[-1]} - set(reference([6], 9))
    bench.run()
    assert bench.output("bad") == reference(prompt, 4)
    assert bench.failures == {"bad": RAISED.failure}
    assert bench.output("good") == reference([6], 9)


def test_neighbour_in_the_middle_of_its_prompt_goes_on() -> None:
    bench = poisoned(max_step_tokens=6)
    long = list(range(20))
    bench.add(ask("long", long, 3))
    bench.step()
    bench.add(ask("bad", [POISON], 3))
    bench.run()
    assert set(bench.failures) == {"bad"}
    assert bench.output("long") == reference(long, 3)


def test_nobody_fails_when_each_can_be_run_alone() -> None:
    """As when a step is too large for the memory that is left."""
    bench = Bench()
    run = bench.runner.run

    def run_small(batch: StepBatch) -> list[Sampled]:
        if len(batch.query_ends) > 1:
            raise MemoryError("too large")
        return run(batch)

    bench.runner.run = run_small
    for name in "abc":
        bench.add(ask(name, [ord(name)], 2 * MAX_FAILED_STEPS))
    bench.run()
    assert {name: bench.output(name) for name in "abc"} == {
        name: reference([ord(name)], 2 * MAX_FAILED_STEPS) for name in "abc"
    }


def test_what_a_culprit_wrote_is_not_shared() -> None:
    bench = poisoned(block_size=2, max_step_tokens=4)
    prompt = [1, 2, 3, 4, 5, POISON]
    bench.add(ask("bad", prompt, 3))
    bench.run()
    assert set(bench.failures) == {"bad"}
    bench.add(ask("again", prompt[:5], 1))
    bench.run()
    assert bench.events["again"][0].num_cached_tokens == 0


def test_broken_step_loses_its_sequences_only() -> None:
    bench = Bench(max_batch_size=2)
    for name in "abc":
        bench.add(ask(name, [ord(name)], 4))
    bench.runner.error = RuntimeError("device lost a page")
    bench.step()
    assert set(bench.failures) == {"a", "b"}
    bench.runner.error = None
    bench.run()
    assert bench.output("c") == reference([ord("c")], 4)
    assert bench.loop.stats().num_free_blocks == 64


@pytest.mark.parametrize("batch_size", [1, 2])
def test_steps_that_keep_failing_altogether_break_the_loop(batch_size: int) -> None:
    bench = Bench(max_batch_size=batch_size)
    for number in range(MAX_FAILED_STEPS * batch_size):
        bench.add(ask(str(number), [1], 4))
    bench.runner.error = RuntimeError("gone")
    for _ in range(MAX_FAILED_STEPS - 1):
        bench.step()
    with pytest.raises(LoopBroken, match="gone"):
        bench.step()


def test_culprits_do_not_break_the_loop_while_others_go_on() -> None:
    bench = poisoned()
    bench.add(ask("good", [1], 3 * MAX_FAILED_STEPS))
    for number in range(2 * MAX_FAILED_STEPS):
        bench.add(ask(str(number), [POISON], 4))
        bench.step()
    bench.run()
    assert len(bench.failures) == 2 * MAX_FAILED_STEPS
    assert bench.output("good") == reference([1], 3 * MAX_FAILED_STEPS)


def test_good_step_between_failed_ones_starts_the_count_anew() -> None:
    bench = poisoned()
    for number in range(2 * MAX_FAILED_STEPS):
        bench.add(ask(f"bad {number}", [POISON], 1))
        bench.step()
        bench.add(ask(f"good {number}", [1], 1))
        bench.step()
    assert len(bench.failures) == 2 * MAX_FAILED_STEPS


def test_details_are_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    bench = poisoned()
    bench.add(ask("bad", [POISON], 1))
    bench.add(ask("good", [1], 1))
    bench.run()
    assert "request bad fails by itself: RuntimeError('the kernel refuses this token')" in caplog.text
    assert "kernel" not in bench.failures["bad"]


def test_runner_that_forgets_a_sample_fails_the_step() -> None:
    bench = Bench()
    bench.runner.run = lambda batch: []
    bench.add(ask("r", [1], 4))
    bench.step()
    assert set(bench.failures) == {"r"}


@settings(max_examples=60, deadline=None)
@given(
    prompts=st.lists(st.lists(st.sampled_from([0, 1, 2, POISON]), min_size=1, max_size=9), min_size=1, max_size=8),
    num_blocks=st.integers(6, 24),
    max_step_tokens=st.integers(2, 20),
)
def test_in_any_traffic_exactly_the_poisoned_fail(
    prompts: list[list[int]], num_blocks: int, max_step_tokens: int
) -> None:
    bench = poisoned(num_blocks=num_blocks, block_size=2, max_step_tokens=max_step_tokens)
    bench.add(ask("steady", [5], 11))  # with somebody who goes on, the engine is never to blame
    for number, prompt in enumerate(prompts):
        bench.add(ask(str(number), prompt, 3))
    try:
        bench.run()
    except LoopBroken:
        assert sum(POISON in prompt for prompt in prompts) >= MAX_FAILED_STEPS
        return
    assert set(bench.failures) == {str(number) for number, prompt in enumerate(prompts) if POISON in prompt}
    assert bench.output("steady") == reference([5], 11)
    for number, prompt in enumerate(prompts):
        if POISON not in prompt:
            assert bench.output(str(number)) == reference(prompt, 3)


class SamplingRunner(FakeRunner):
    """The fake model with the real sampler, which has finished its work when a poisoned step raises."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self.sampler = Sampler()
        self.poisoned_at: int | None = None

    def run(self, batch: StepBatch) -> list[Sampled]:
        states = [result.token_id for result in super().run(batch)]
        rows = [torch.randn(64, generator=torch.Generator().manual_seed(state)) for state in states]
        sampled = self.sampler.sample(torch.stack(rows), batch.samples)
        if any(sample.position == self.poisoned_at and sample.sequence_id == 0 for sample in batch.samples):
            raise RuntimeError("too late")
        return sampled

    def forget(self, sequence_id: int) -> None:
        super().forget(sequence_id)
        self.sampler.forget(sequence_id)


def test_sampler_state_does_not_advance_twice() -> None:
    """Random draws, penalties and all: a neighbour's tokens are those of a run in which nothing failed."""
    sampling = SamplingParams(seed=11, temperature=2.0, repetition_penalty=1.5, presence_penalty=1.0, top_p=0.9)
    outputs = []
    for poisoned_at in (None, 3):
        bench = Bench(runner_class=SamplingRunner)
        bench.runner.poisoned_at = poisoned_at
        bench.add(ask("bad", [1], 12, sampling=sampling))
        bench.add(ask("good", [2, 3], 12, sampling=sampling))
        bench.run()
        assert set(bench.failures) == ({"bad"} if poisoned_at else set())
        outputs.append(bench.output("good"))
    assert outputs[0] == outputs[1]
    assert len(set(outputs[0])) > 6
