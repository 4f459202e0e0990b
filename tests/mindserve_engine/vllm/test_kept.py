"""An engine that is lost is ended and replaced; the engines here are played, what vLLM loses is killed elsewhere."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from mindserve_engine.interface import EngineError, EngineUnavailable
from mindserve_engine.options import EngineOptions, VllmOptions
from mindserve_engine.types import (
    EngineHealth,
    EngineInfo,
    EngineState,
    EngineStats,
    GenerationRequest,
    SamplingParams,
    Vocabulary,
)
from mindserve_engine.vllm import kept
from mindserve_engine.vllm.kept import KeptEngine

TICK_S = 0.01
REQUEST = GenerationRequest(request_id="r", prompt_token_ids=[1], max_tokens=1, sampling=SamplingParams())
VOCABULARY = Vocabulary(token_bytes=[b"a"], special_token_ids=[], eos_token_ids=(0,))


class Played:
    """Implements ``Perishable``."""

    def __init__(self, *, starts: bool = True, ends: bool = True) -> None:
        self.starts = starts
        self.state = EngineState.LOADING
        self.silent: tuple[int, ...] = ()
        self.failed_with: list[str] = []
        self.vocabulary: Vocabulary | None = None
        self.is_closed = asyncio.Event()
        self.ending = asyncio.Event()
        if ends:
            self.ending.set()

    info = EngineInfo(model_type="played", vocab_size=1, max_context=2, max_prompt_tokens=1)

    async def start(self) -> None:
        if not self.starts:
            self.state = EngineState.FAILED
            raise EngineError("no room")
        self.state = EngineState.READY

    def learn(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    async def check_grammar(self, grammar: str) -> None: ...

    async def admit(self, request: GenerationRequest) -> Any:
        return self

    def health(self) -> EngineHealth:
        return EngineHealth(state=self.state)

    def stats(self) -> EngineStats:
        return EngineStats(num_running=1, num_blocks=5, prefix_hit_tokens_total=10)

    async def close(self) -> None:
        self.is_closed.set()
        await self.ending.wait()

    def silent_ranks(self) -> tuple[int, ...]:
        return self.silent

    def fail_all(self, reason: str) -> None:
        self.failed_with.append(reason)


class Guard:
    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class Stage:
    """The engines of one test, in the order of their making."""

    def __init__(self, **vllm: Any) -> None:
        self.made: list[Played] = []
        self.unstartable: set[int] = set()
        self.endless: set[int] = set()
        self.guard = Guard()
        self.engine = KeptEngine(
            EngineOptions(model_path=Path("m"), vllm=VllmOptions(**vllm)), self._make, lambda: self.guard, tick_s=TICK_S
        )

    def _make(self, options: EngineOptions) -> Played:
        number = len(self.made)
        self.made.append(Played(starts=number not in self.unstartable, ends=number not in self.endless))
        return self.made[-1]

    async def reaches(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110 - the engine's own task moves it
                await asyncio.sleep(TICK_S)

    @property
    def state(self) -> EngineState:
        return self.engine.health().state


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., Stage]]:
    monkeypatch.setattr(kept, "FIRST_BACKOFF_S", TICK_S)
    made: list[Stage] = []

    def build(**vllm: Any) -> Stage:
        made.append(Stage(**vllm))
        return made[-1]

    yield build
    for one in made:
        for engine in one.made:
            engine.ending.set()
        await one.engine.close()


def kill(engine: Played) -> None:
    engine.state = EngineState.FAILED


def silence(engine: Played) -> None:
    engine.silent = (1,)


@pytest.mark.parametrize("lose", [kill, silence])
async def test_a_lost_engine_is_ended_and_replaced(stage: Callable[..., Stage], lose: Callable[[Played], None]) -> None:
    here = stage(data_parallel=2)
    await here.engine.start()
    here.engine.learn(VOCABULARY)
    first = here.made[0]
    assert await here.engine.admit(REQUEST) is first  # type: ignore[comparison-overlap]
    lose(first)
    await here.reaches(lambda: len(here.made) == 2 and here.state is EngineState.READY)
    assert first.failed_with == [kept.ENDED]
    assert first.is_closed.is_set()
    assert await here.engine.admit(REQUEST) is here.made[1]  # type: ignore[comparison-overlap]
    assert here.made[1].vocabulary is VOCABULARY
    assert here.engine.stats() == EngineStats(
        num_running=1, num_blocks=5, prefix_hit_tokens_total=20, num_restarts_total=1
    )


async def test_while_one_ends_nothing_is_admitted(stage: Callable[..., Stage]) -> None:
    here = stage()
    await here.engine.start()
    first = here.made[0]
    first.ending.clear()
    silence(first)
    await first.is_closed.wait()
    assert first.failed_with == [kept.ENDED]  # before its end, which may take long
    assert here.state is EngineState.RESTARTING
    with pytest.raises(EngineUnavailable, match="another one is started"):
        await here.engine.admit(REQUEST)
    with pytest.raises(EngineUnavailable, match="another one is started"):
        await here.engine.check_grammar("start: 'a'")
    assert here.engine.info is first.info
    first.ending.set()
    await here.reaches(lambda: here.state is EngineState.READY)


async def test_an_end_that_hangs_does_not_hold_up_the_next(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "END_S", 0.05)
    here = stage()
    await here.engine.start()
    here.made[0].ending.clear()
    kill(here.made[0])
    await here.reaches(lambda: len(here.made) == 2 and here.state is EngineState.READY)
    here.made[0].ending.set()


async def test_death_is_unreadiness_at_once(stage: Callable[..., Stage]) -> None:
    here = stage()
    await here.engine.start()
    kill(here.made[0])
    assert here.state is EngineState.RESTARTING
    with pytest.raises(EngineUnavailable):
        await here.engine.admit(REQUEST)


async def test_it_is_left_to_a_supervisor_where_that_is_set(stage: Callable[..., Stage]) -> None:
    here = stage(restart=False)
    await here.engine.start()
    kill(here.made[0])
    await here.reaches(lambda: here.state is EngineState.FAILED)
    assert here.made[0].is_closed.is_set()
    assert len(here.made) == 1


async def test_starts_that_fail_are_tried_again_and_then_given_up(stage: Callable[..., Stage]) -> None:
    here = stage()
    here.unstartable = {1, 2, 4, 5, 6}
    await here.engine.start()
    kill(here.made[0])
    await here.reaches(lambda: len(here.made) == 4 and here.state is EngineState.READY)
    kill(here.made[3])
    await here.reaches(lambda: here.state is EngineState.FAILED)
    assert len(here.made) == 7
    assert all(engine.is_closed.is_set() for engine in here.made)
    assert here.engine.health().reason == "the engine ended and cannot be started again"


async def test_a_start_that_fails_and_does_not_end_is_the_last(
    stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "END_S", 0.05)
    here = stage()
    here.unstartable = here.endless = {1}
    await here.engine.start()
    kill(here.made[0])
    await here.reaches(lambda: here.state is EngineState.FAILED)
    assert len(here.made) == 2
    here.made[1].ending.set()


async def test_closing_ends_the_keeping(stage: Callable[..., Stage]) -> None:
    here = stage()
    await here.engine.start()
    kill(here.made[0])
    await here.engine.close()
    assert here.state is EngineState.CLOSED
    assert len(here.made) <= 2
    assert here.made[-1].is_closed.is_set()
    assert here.guard.is_closed
    with pytest.raises(EngineUnavailable):
        await here.engine.admit(REQUEST)


async def test_a_first_start_that_fails_is_told_and_not_tried_again(stage: Callable[..., Stage]) -> None:
    here = stage()
    here.made[0].starts = False
    with pytest.raises(EngineError, match="no room"):
        await here.engine.start()
    assert here.state is EngineState.FAILED
    assert len(here.made) == 1
