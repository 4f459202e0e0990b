"""Timings from the messages of vLLM's core, with messages as its releases send them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mindserve_engine.vllm.clock import StepClock


def row(name: str, num_tokens: int, **events: float) -> Any:
    stamps = [SimpleNamespace(type=SimpleNamespace(name=kind), timestamp=stamp) for kind, stamp in events.items()]
    return SimpleNamespace(request_id=f"{name}-1a2b", new_token_ids=[1] * num_tokens, events=stamps or None)


def step(timestamp: float, *rows: Any, elapsed_ms: float | None = None, batch: tuple[int, int] = (0, 1)) -> Any:
    details = None
    if elapsed_ms is not None:
        details = SimpleNamespace(num_ctx_requests=batch[0], num_generation_requests=batch[1], elapsed_ms=elapsed_ms)
    stats = SimpleNamespace(kv_cache_usage=0.25, iteration_details=details)
    return SimpleNamespace(outputs=list(rows), scheduler_stats=stats, timestamp=timestamp)


@pytest.fixture
def clock() -> StepClock:
    made = StepClock(lambda internal: internal.rpartition("-")[0])
    made.open("a")
    made.open("b")
    return made


def test_a_first_token_counts_from_the_prompt_s_first_step(clock: StepClock) -> None:
    clock.note(step(10.5, row("a", 1, QUEUED=10.0, SCHEDULED=10.2)))
    (timing,) = clock.take("a", 1)
    assert (timing.queue_wait_us, timing.batch_size) == (200_000, 1)
    assert timing.step_ms == pytest.approx(300)
    assert clock.kv_usage == 0.25


def test_later_tokens_count_from_the_one_before(clock: StepClock) -> None:
    clock.note(step(1.0, row("a", 1)))
    clock.note(step(1.05, row("a", 1), row("b", 1), elapsed_ms=40.0, batch=(1, 2)))
    timing = clock.take("a", 2)[1]
    assert timing.queue_wait_us == 10_000
    assert timing.batch_size == 3
    assert timing.step_ms == pytest.approx(50)


def test_a_release_without_details_counts_rows_and_preemptions(clock: StepClock) -> None:
    clock.note(step(1.0, row("a", 1), row("b", 1)))
    clock.note(step(3.0, row("a", 1, PREEMPTED=1.5, SCHEDULED=2.75), row("b", 0)))
    first, second = clock.take("a", 2)
    assert (first.batch_size, second.batch_size) == (2, 1)
    assert second.queue_wait_us == 1_250_000
    assert clock.num_preemptions == 1


def test_tokens_of_one_step_share_its_time(clock: StepClock) -> None:
    clock.note(step(1.0, row("a", 1)))
    clock.note(step(1.3, row("a", 3), elapsed_ms=240.0))
    shared = clock.take("a", 4)[1:]
    assert [timing.step_ms for timing in shared] == pytest.approx([100, 100, 100])
    assert [timing.queue_wait_us for timing in shared] == [60_000, 0, 0]


def test_requests_that_are_gone_are_passed_over(clock: StepClock) -> None:
    clock.close("a")
    clock.close("a")
    clock.note(step(1.0, row("a", 1), row("nobody", 1)))
    clock.note(SimpleNamespace(outputs=[], scheduler_stats=None, timestamp=1.0))
    clock.open("a")
    with pytest.raises(IndexError):
        clock.take("a", 1)
