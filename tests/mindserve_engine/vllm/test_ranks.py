"""Which copy of the model gets a request, and which is silent."""

import pytest

from mindserve_engine.vllm.ranks import Ranks


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_request_goes_where_the_least_runs(clock: Clock) -> None:
    ranks = Ranks(3, 10.0, now=clock)
    assert [ranks.place(load) for load in (4, 1, 2, 1, 1)] == [0, 1, 2, 1, 1]
    ranks.leave(0, 4)
    assert ranks.place(1) == 0


def test_without_work_nobody_is_silent(clock: Clock) -> None:
    ranks = Ranks(2, 10.0, now=clock)
    clock.now += 1000
    assert ranks.silent() == ()
    ranks.open(0)
    ranks.close(0)
    clock.now += 1000
    assert ranks.silent() == ()


def test_silence_counts_from_the_first_work(clock: Clock) -> None:
    ranks = Ranks(1, 10.0, now=clock)
    clock.now += 1000
    ranks.open(0)
    clock.now += 10
    assert ranks.silent() == ()
    clock.now += 0.1
    assert ranks.silent() == (0,)


def test_more_work_does_not_end_a_silence(clock: Clock) -> None:
    ranks = Ranks(1, 10.0, now=clock)
    ranks.open(0)
    clock.now += 6
    ranks.open(0)
    clock.now += 6
    assert ranks.silent() == (0,)


def test_a_copy_that_works_does_not_cover_for_another(clock: Clock) -> None:
    ranks = Ranks(2, 10.0, now=clock)
    ranks.open(0)
    ranks.open(1)
    for _ in range(5):
        clock.now += 3
        ranks.heard(0)
    assert ranks.silent() == (1,)
    ranks.heard(1)
    assert ranks.silent() == ()


def test_an_unknown_copy_is_passed_over(clock: Clock) -> None:
    Ranks(1, 10.0, now=clock).heard(7)
