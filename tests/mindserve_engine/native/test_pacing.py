"""Steps with prompts and decodes take about as long as they may, on fast models and slow ones; nobody starves."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import pytest
from fake_runner import FakeRunner, reference
from hypothesis import given, settings
from hypothesis import strategies as st
from loops import Bench, ask

from mindserve_engine.native.batch import Sampled, StepBatch
from mindserve_engine.native.pacing import Pacer
from mindserve_engine.options import EngineOptions


@dataclass
class Ran:
    """One step as the runner saw it."""

    prompt_tokens: int
    decodes: int
    seconds: float


class SlowRunner(FakeRunner):
    """Each step takes a fixed time and some for each token of a prompt, on the bench's clock."""

    step_s = 0.0
    token_s = 0.0

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self.steps: list[Ran] = []

    def run(self, batch: StepBatch) -> list[Sampled]:
        lengths = [end - begin for begin, end in itertools.pairwise([0, *batch.query_ends])]
        prompt_tokens = sum(length for length in lengths if length > 1)
        seconds = self.step_s + self.token_s * prompt_tokens
        self.clock.now += seconds
        self.steps.append(Ran(prompt_tokens, lengths.count(1), seconds))
        return super().run(batch)


def slow_bench(*, step_s: float, token_s: float, num_blocks: int = 1100, **options: object) -> Bench:
    bench = Bench(num_blocks=num_blocks, runner_class=SlowRunner, prefix_cache=False, **options)
    bench.runner.step_s, bench.runner.token_s, bench.runner.clock = step_s, token_s, bench.clock
    return bench


def mixed(bench: Bench) -> list[Ran]:
    return [step for step in bench.runner.steps if step.prompt_tokens and step.decodes]


def run_beside_decodes(bench: Bench, prompt: list[int], num_decodes: int = 1) -> None:
    for number in range(num_decodes):
        bench.add(ask(f"decode {number}", [number], 400))
    bench.step()
    bench.add(ask("long", prompt, 2))
    while not bench.output("long"):
        bench.step()


@pytest.mark.parametrize("token_s", [0.0005, 0.001, 0.004])
@pytest.mark.parametrize("step_s", [0.0, 0.05])
def test_mixed_steps_take_the_time_they_may(step_s: float, token_s: float) -> None:
    bench = slow_bench(step_s=step_s, token_s=token_s, mixed_step_ms=250.0)
    prompt = list(range(900)) * 2
    run_beside_decodes(bench, prompt)
    assert bench.output("long") == reference(prompt, 1)
    steps = [step.seconds for step in mixed(bench)]
    # the first is taken before anything is known; of those after it none is longer, and none but the last much shorter
    assert max(steps[1:]) <= 0.25 + step_s
    assert min(steps[3:-1]) >= 0.75 * 0.25


def test_prompts_without_decodes_are_not_held_back() -> None:
    bench = slow_bench(step_s=0.01, token_s=0.001, max_step_tokens=2048)
    run_beside_decodes(bench, list(range(800)))  # its speed is known now
    bench.loop.abort("long")
    bench.loop.abort("decode 0")
    bench.runner.steps.clear()
    bench.add(ask("alone", list(range(900)) * 2, 1))
    bench.run()
    assert [step.prompt_tokens for step in bench.runner.steps] == [1800]


def test_steps_are_shorter_than_a_process_may_be_silent() -> None:
    bench = slow_bench(step_s=0.0, token_s=0.1, heartbeat_timeout_s=60.0)
    bench.add(ask("alone", list(range(900)) * 2, 1))
    bench.run()
    first, *others = [step.seconds for step in bench.runner.steps]
    assert first < 60
    assert max(others) <= 15
    assert min(others[:-1]) > 14


@pytest.mark.parametrize("num_decodes", [1, 40])
def test_prompts_get_most_of_the_time_beside_slow_decodes(num_decodes: int) -> None:
    bench = slow_bench(step_s=1.0, token_s=0.01, max_batch_size=num_decodes + 1)
    for number in range(num_decodes):
        bench.add(ask(f"decode {number}", [number], 400))
    bench.step()
    bench.step()
    bench.runner.steps.clear()
    bench.add(ask("long", list(range(900)) * 2, 1))
    while not bench.output("long"):
        bench.step()
    times = [step.seconds for step in bench.runner.steps if step.prompt_tokens]
    assert max(times[1:]) <= 3
    assert all(2.0 < seconds < 2.3 for seconds in times[4:-1])
    for number in range(num_decodes):
        assert len(bench.output(f"decode {number}")) == 2 + len(bench.runner.steps)


def test_prompts_get_on_as_fast_as_decodes_when_the_speed_of_those_is_not_known() -> None:
    bench = slow_bench(step_s=1.0, token_s=0.1)
    run_beside_decodes(bench, list(range(400)), num_decodes=40)
    assert min(step.prompt_tokens for step in mixed(bench)[:-1]) == 40


def test_slow_step_is_made_up_for() -> None:
    """As when another program had the machine for a while."""
    bench = slow_bench(step_s=0.0, token_s=0.001, mixed_step_ms=250.0)
    run_beside_decodes(bench, list(range(600)))
    bench.runner.token_s = 0.1
    bench.add(ask("longer", list(range(900)) * 2, 1))
    bench.step()
    bench.runner.token_s = 0.001
    bench.runner.steps.clear()
    for _ in range(4):
        bench.step()
    sizes = [step.prompt_tokens for step in bench.runner.steps]
    assert sizes[0] < 20
    assert sizes[-1] > 200


def test_small_steps_say_nothing() -> None:
    """Their time is not that of their tokens."""
    pacer = Pacer(EngineOptions(model_path=Path("none"), mixed_step_ms=250.0))
    pacer.note(1000, 1.0)
    assert pacer.limit(1) == 250
    for seconds in (0.02, 0.24):
        pacer.note(2, seconds)
        assert pacer.limit(1) == 250
    pacer.note(125, 0.5)
    assert pacer.limit(1) == 62


def test_slow_steps_of_decodes_leave_more_time_for_prompts() -> None:
    pacer = Pacer(EngineOptions(model_path=Path("none"), mixed_step_ms=250.0))
    pacer.note(1000, 1.0)
    for seconds, limit in [(0.1, 250), (0.2, 440), (9.0, 1), (0.2, 440), (0.1, 250)]:
        pacer.note(0, seconds)
        assert pacer.limit(1) == limit


def test_decodes_are_looked_at_again() -> None:
    """A busy server has prompts in every step; how long its decodes take must be learned all the same."""
    bench = slow_bench(step_s=0.02, token_s=0.001)
    run_beside_decodes(bench, list(range(600)))
    bench.runner.step_s = 0.2
    bench.runner.steps.clear()
    bench.add(ask("longer", list(range(900)) * 2, 1))
    while not bench.output("longer"):
        bench.step()
    assert all(0.4 < step.seconds < 0.5 for step in mixed(bench)[-4:-1])


def test_many_prompts_before_few_decodes_make_longer_steps() -> None:
    """Else a batch fills up one prompt after the other, and everybody waits for most of it."""
    pacer = Pacer(EngineOptions(model_path=Path("none"), mixed_step_ms=250.0))
    pacer.note(1000, 1.0)
    assert [pacer.limit(8, num_prompts) for num_prompts in (1, 3, 5, 9)] == [250, 250, 500, 1000]


@settings(max_examples=100, deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(0, 5000), st.floats(0, 1e6)), max_size=20),
    num_decodes=st.integers(0, 300),
    mixed_step_ms=st.floats(0, 1e9),
)
def test_there_is_always_a_limit(steps: list[tuple[int, float]], num_decodes: int, mixed_step_ms: float) -> None:
    pacer = Pacer(EngineOptions(model_path=Path("none"), mixed_step_ms=mixed_step_ms))
    for num_prompt_tokens, seconds in steps:
        pacer.note(num_prompt_tokens, seconds)
    assert pacer.limit(num_decodes) >= 16 or pacer.limit(num_decodes) == 1 == min(num_decodes, 1)
